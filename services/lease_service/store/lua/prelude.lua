-- Put before every other script: names of the keys, the clock, and what several operations share.
--
-- KEYS  1 h  ZSET   token -> expires_ms           2 l  HASH  token -> packed record
--       3 u  HASH   scope -> used weight          4 p  HASH  scope -> "version capacity max_lifetime_ms paused"
--       5 x  ZSET   spent token -> until_ms       6 f  STRING highest fence, no TTL
--       7 a  STREAM audit events                  8 e  STRING "run replication started_ms longest_ms", no TTL
--       9 q  ZSET   waiters, see queue.lua       10 o  ZSET   tenants that wait
--      11 w  HASH   token -> packed waiter       12 d  ZSET   waiter -> deadline_ms
--      13 k  HASH   shape -> packed lane         14 t  HASH   packed tenants and the queue's clock
--      15 g  HASH   token -> channel of a grant that its waiter has not confirmed yet
--       All carry the hash tag of one pool.
-- ARGV  the last one, in every script, is the identity of the server ("run replication first_history"), '' for any.
-- Invariants: for every scope, u[scope] = sum of weights of the records in l that name it; h and l hold the same tokens.
--       Redis time is the only clock, read once per script. A lease is live while expires_ms > now.
-- Writes come after every check, so that an error leaves the pool as it was.

local H, L, U, P, X = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local F, A, E = KEYS[6], KEYS[7], KEYS[8]
local Q, O, W, D = KEYS[9], KEYS[10], KEYS[11], KEYS[12]
local K, T, G = KEYS[13], KEYS[14], KEYS[15]
local SERVER = table.remove(ARGV)

local REAP_MOST = 32          -- expired leases removed per call: bounds the time of one call
local LINGER_MS = 60000       -- keys outlive the latest lease by this much
local KEEP_STEP_MS = 500      -- see keep_all
local SPENT_MS = 30000        -- a released or expired token can't be used again for this long
local AUDIT_MOST = 100000     -- undrained audit events kept per pool, approximately

local clock = redis.call('TIME')
local now_us = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local now = math.floor(now_us / 1000)

-- Write a whole number without an exponent.
local function whole(value)
  return string.format('%.0f', value)
end

-- Let a key live LINGER_MS past an instant; never shortens. GT alone does nothing on a key without a TTL, hence NX;
-- GT comes first because it settles almost every call.
local function keep(key, until_ms)
  local at = whole(until_ms + LINGER_MS)
  if redis.call('PEXPIREAT', key, at, 'GT') == 0 then
    redis.call('PEXPIREAT', key, at, 'NX')
  end
end

-- Keep every key of the pool together. Under load almost every lease ends a little later than the latest one before it:
-- steps of less than KEEP_STEP_MS are left out, so the keys may go that much earlier.
local function keep_all(until_ms)
  if redis.call('PEXPIRETIME', H) >= until_ms + LINGER_MS - KEEP_STEP_MS then
    return
  end
  keep(H, until_ms)
  keep(L, until_ms)
  keep(U, until_ms)
  keep(P, until_ms)
  keep(X, until_ms)
end

-- Append one audit event: a JSON list in one field, which costs half of a field per value. O(1).
local function audit(kind, token, fence, weight, scopes, owner, job, note)
  redis.call('XADD', A, 'MAXLEN', '~', AUDIT_MOST, '*', 'e',
    cjson.encode({kind, token, whole(fence), whole(weight), scopes, owner, job, note}))
end

-- Record of a lease: fence owner job weight ttl_ms born_ms max_until_ms scope...; max_until_ms 0 is unlimited.
local function pack(fence, owner, job, weight, ttl, born, max_until, ...)
  return cmsgpack.pack(fence, owner, job, weight, ttl, born, max_until, ...)
end

-- Give weight back to scopes. A counter that would fall below zero has drifted: it is removed, which means zero.
local function uncharge(weight, ...)
  for i = 1, select('#', ...) do
    local scope = select(i, ...)
    if redis.call('HINCRBY', U, scope, whole(-weight)) <= 0 then
      redis.call('HDEL', U, scope)
    end
  end
end

local function drop_record(kind, token, note, fence, owner, job, weight, ttl, born, max_until, ...)
  uncharge(weight, ...)
  audit(kind, token, fence, weight, table.concat({...}, ','), owner, job, note)
  return born
end

-- Remove one lease, live or not; its token is spent afterwards unless spent_from is nil. Returns when it was granted, or
-- nil without a record.
local function drop(kind, token, spent_from, note)
  local record = redis.call('HGET', L, token)
  redis.call('ZREM', H, token)
  redis.call('HDEL', G, token)
  if spent_from then
    redis.call('ZADD', X, whole(spent_from + SPENT_MS), token)
  end
  if not record then
    return nil
  end
  redis.call('HDEL', L, token)
  return drop_record(kind, token, note, cmsgpack.unpack(record))
end

-- Take back a grant that its waiter did not confirm in time. The token stays usable: if its waiter lives after all it may
-- ask again. Whoever answers for it is suspected until heard of. Returns whether the lease was such a grant.
local function lapse(token)
  local channel = redis.call('HGET', G, token)
  if not channel then
    return false
  end
  drop('lapse', token, nil, '')
  if redis.call('EXISTS', T) == 1 then
    redis.call('HSET', T, '~' .. channel, 1)
  end
  return true
end

-- Remove at most REAP_MOST expired leases. Returns how many. O(reaped * log n).
local function reap()
  local expired = redis.call('ZRANGEBYSCORE', H, '-inf', whole(now), 'WITHSCORES', 'LIMIT', 0, REAP_MOST)
  for i = 1, #expired, 2 do
    if not lapse(expired[i]) then
      drop('expire', expired[i], tonumber(expired[i + 1]), '')
    end
  end
  if #expired > 0 then
    keep(X, now)
  end
  return #expired / 2
end

-- Milliseconds until a token's lease ends; nil when it holds nothing, also when it has expired and is not reaped yet.
local function remaining_of(token)
  local expires = redis.call('ZSCORE', H, token)
  if not expires then
    return nil
  end
  local left = tonumber(expires) - now
  if left <= 0 then
    return nil
  end
  return left
end

-- Tell whether e was written on this very server, in its present life. A new replication id alone means nothing on a
-- server that was never promoted: it changes there when the first replica comes or the last one has been gone for long.
local function is_same_server(run, replication)
  if SERVER == '' then
    return true
  end
  local run_now, replication_now, first_history = string.match(SERVER, '^(%S+) (%S+) (%d)$')
  return run == run_now and (replication == replication_now or first_history == '1')
end

local function write_epoch(started, longest)
  local identity = SERVER == '' and '- -' or string.match(SERVER, '^%S+ %S+')
  redis.call('SET', E, identity .. ' ' .. whole(started) .. ' ' .. whole(longest))
end

-- Look whether leases of this pool may have been lost: its fence or epoch is gone, or the epoch was written on another
-- server. Then the pool relearns: live leases may come back with their tickets, and nobody else gets a slot until
-- `longest` milliseconds (the longest ttl ever granted) have passed since this was first noticed.
-- Returns the fence, whether leases may come back, and how many milliseconds no grant is allowed (0: grants are allowed).
-- Only who knows the pool's policies may give a `longest` and so end the relearning; others give nil and end nothing.
-- Every script that grants must ask. O(1).
local function recall(longest)
  local marks = redis.call('MGET', F, E)
  local fence, run, replication, started, known = marks[1] and tonumber(marks[1]), nil, nil, nil, nil
  if marks[2] then
    run, replication, started, known = string.match(marks[2], '^(%S+) (%S+) (%d+) (%d+)$')
  end
  started, known = tonumber(started or 0), tonumber(known or 0)
  local asked = math.max(known, longest or 0)
  if not fence or not run or not is_same_server(run, replication) then
    fence = fence or now_us
    redis.call('SET', F, whole(fence))
    write_epoch(now, asked)
    return fence, true, math.max(asked, 1)
  end
  if started == 0 then
    return fence, false, 0
  end
  if started > now then
    started = now
    write_epoch(started, asked)
  elseif longest and now >= started + asked then
    write_epoch(0, asked)
    return fence, false, 0
  elseif asked > known then
    write_epoch(started, asked)
  end
  return fence, true, math.max(started + asked - now, 1)
end
