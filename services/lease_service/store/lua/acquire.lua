-- Take one lease per token, in order, until a scope is full; where asked, let the others wait.
--
-- ARGV    1 owner  2 job  3 weight  4 ttl_ms  5 relearn_ms
--         6 '' not to wait, or "wait_ms priority share exact most_waiting most_waiting_of_tenant place": share is the tenant's
--           weight, exact 1 where the number of listeners of a channel can be trusted, place 0 or what outcome 9 gave before
--         7 tenant  8 channel of the replica that answers for the waiters  9 number of scopes S
--         then S pairs: scope, "version capacity max_lifetime_ms paused" as the caller knows them; then the tokens.
-- Returns limiting scope ('' when nothing was refused), its used weight, its capacity, retry_after_ms, now_ms,
--         then for each token: outcome, fence, remaining_ms, weight, record ('' unless it holds a lease).
-- Outcome 1 granted, 2 held already by the same owner, 3 refused: full, 4 refused: paused, 5 refused: token spent,
--         6 refused: another owner's token, 7 refused: wider than a capacity, 8 refused: relearning after a loss of data,
--         9 waits: in place of the fence its place, and the remaining_ms of its wait, 10 refused: too many wait
-- Keeps   used <= capacity in every scope; fences rise strictly; the newest policy version wins, whoever brings it;
--         a token is granted once; nobody is granted past a waiter who fits. Asking again for a token whose grant was
--         pushed confirms it: outcome 1, with its whole ttl.
-- Cost    O(S + log n) per token, plus reaping, plus a dispatch while somebody waits.

local owner, job = ARGV[1], ARGV[2]
local weight, ttl, relearn = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local count = tonumber(ARGV[9])
local first_token = 10 + 2 * count
local scopes = {}
for i = 1, count do
  scopes[i] = ARGV[8 + 2 * i]
end
local tenant, channel = ARGV[7], ARGV[8]
local wait, priority, share, exact, most_waiting, most_of_tenant, place =
  string.match(ARGV[6], '^(%d+) (%S+) (%d+) (%d) (%d+) (%d+) (%d+)$')

reap()
local adopted = {}
local limits, lifetime, paused, too_wide = {}, 0, false, nil
local stored = redis.call('HMGET', P, unpack(scopes))
for i = 1, count do
  local policy = ARGV[9 + 2 * i]
  if stored[i] ~= policy then
    if stored[i] and tonumber(string.match(stored[i], '^%d+')) > tonumber(string.match(policy, '^%d+')) then
      policy = stored[i]
    else
      adopted[#adopted + 1] = scopes[i]
      adopted[#adopted + 1] = policy
    end
  end
  local capacity, longest, stop = string.match(policy, '^%d+ (%d+) (%d+) (%d)')
  limits[i] = tonumber(capacity)
  longest = tonumber(longest)
  if longest > 0 and (lifetime == 0 or longest < lifetime) then
    lifetime = longest
  end
  paused = paused or stop == '1'
  if weight > 1 and weight > limits[i] and not too_wide then
    too_wide = i
  end
end

if #adopted > 0 then
  redis.call('HSET', P, unpack(adopted))
  keep(P, now + ttl)
end
local reserved, more, queue = {}, false, nil
local function the_queue()
  queue = queue or open_queue()
  return queue
end
if somebody_waits() then
  if wait then
    redis.call('HDEL', T, '~' .. channel)
  end
  reserved, more = the_queue().dispatch(relearn)
end

-- Used weights, room for how many more leases, in which scope it ends.
local function measure()
  local used = redis.call('HMGET', U, unpack(scopes))
  local room, narrow = math.huge, 1
  for i = 1, count do
    used[i] = tonumber(used[i] or 0)
    local fits = math.floor((limits[i] - used[i]) / weight)
    if reserved[scopes[i]] or more then
      fits = math.min(fits, 0)
    end
    if fits < room then
      room, narrow = fits, i
    end
  end
  return used, room, narrow
end

local used, room, narrow = measure()
if room <= 0 and used[narrow] > 0 and redis.call('EXISTS', H) == 0 then
  redis.call('DEL', U, L)
  used, room, narrow = measure()
end

local fence, _, relearning_ms = recall(relearn)
local relearning = relearning_ms > 0

local life, max_until = ttl, 0
if lifetime > 0 then
  max_until = now + lifetime
  life = math.min(ttl, lifetime)
end
local names = table.concat(scopes, ',')

local function grant(token)
  fence = math.max(fence + 1, now_us)
  redis.call('ZADD', H, whole(now + life), token)
  local record = pack(fence, owner, job, weight, ttl, now, max_until, unpack(scopes))
  redis.call('HSET', L, token, record)
  for i = 1, count do
    used[i] = used[i] + weight
  end
  audit('grant', token, fence, weight, names, owner, job, '')
  room = room - 1
  return fence, life, weight, record
end

local latest_wait = 0

-- Outcome of a token that can't be granted now, for the reason of that code.
local function refuse_or_wait(token, code)
  if not wait then
    return code, 0, 0, 0, ''
  end
  if too_wide then
    return 7, 0, 0, 0, ''
  end
  local deadline = now + tonumber(wait)
  local cost = math.max(math.floor(weight * UNIT / tonumber(share)), 1)
  local sorted = {unpack(scopes)}
  table.sort(sorted)
  local waiter = the_queue().join(token, priority .. ' ' .. whole(weight) .. ' ' .. table.concat(sorted, ','), tenant,
    place ~= '0' and digits(tonumber(place), 16), {pool = tonumber(most_waiting), tenant = tonumber(most_of_tenant)},
    {channel = channel, exact = tonumber(exact), deadline = deadline, owner = owner, job = job, ttl = ttl, cost = cost})
  if not waiter then
    return 10, 0, 0, 0, ''
  end
  latest_wait = math.max(latest_wait, deadline)
  return 9, tonumber(waiter.seq), deadline - now, 0, ''
end

-- Outcome of a token that waits already; whoever asks answers for it from now on.
local function still_waits(token, packed)
  local waiter = cmsgpack.unpack(packed)
  if waiter.owner ~= owner then
    return 6, 0, 0, 0, ''
  end
  if not wait then
    return 3, 0, 0, 0, ''
  end
  if waiter.channel ~= channel then
    waiter.channel, waiter.exact = channel, tonumber(exact)
    redis.call('HSET', W, token, cmsgpack.pack(waiter))
  end
  return 9, tonumber(waiter.seq), math.max(waiter.deadline - now, 0), 0, ''
end

-- Outcome of a token with a lease.
local function still_holds(token, expires, record)
  local held_fence, held_by, _, held_weight, held_ttl, _, until_ms = cmsgpack.unpack(record)
  if held_by ~= owner then
    return 6, 0, 0, 0, ''
  end
  if redis.call('HDEL', G, token) == 0 then
    return 2, held_fence, expires - now, held_weight, record
  end
  expires = now + held_ttl
  expires = until_ms > 0 and math.min(expires, until_ms) or expires
  redis.call('ZADD', H, 'XX', whole(expires), token)
  keep_all(expires)
  return 1, held_fence, expires - now, held_weight, record
end

-- Outcome for one token: code, fence, remaining_ms, weight, record.
local function settle(token)
  local expires = tonumber(redis.call('ZSCORE', H, token) or 0)
  if expires > 0 and not (expires <= now and lapse(token)) then
    local record = redis.call('HGET', L, token)
    if expires <= now or not record then
      return 5, 0, 0, 0, ''
    end
    return still_holds(token, expires, record)
  end
  local waiter = queue and redis.call('HGET', W, token)
  if waiter then
    return still_waits(token, waiter)
  end
  local spent = redis.call('ZSCORE', X, token)
  if spent and tonumber(spent) > now then
    return 5, 0, 0, 0, ''
  end
  if relearning then
    return refuse_or_wait(token, 8)
  end
  if paused then
    return refuse_or_wait(token, 4)
  end
  if too_wide then
    return 7, 0, 0, 0, ''
  end
  if room <= 0 then
    return refuse_or_wait(token, 3)
  end
  return 1, grant(token)
end

local answer = {'', 0, 0, 0, now}
local granted, refused = false, false
for i = first_token, #ARGV do
  local code, its_fence, left, its_weight, record = settle(ARGV[i])
  granted = granted or code == 1
  refused = refused or code == 3 or code == 4 or code >= 7
  local at = #answer
  answer[at + 1], answer[at + 2], answer[at + 3], answer[at + 4] = code, its_fence, left, its_weight
  answer[at + 5] = record
end
if granted then
  local charged = {}
  for i = 1, count do
    charged[2 * i - 1], charged[2 * i] = scopes[i], whole(used[i])
  end
  redis.call('HSET', U, unpack(charged))
  redis.call('SET', F, whole(fence))
  keep_all(now + life)
end
if queue then
  queue.close()
end
if latest_wait > 0 then
  queue.keep(latest_wait)
end
if refused then
  narrow = too_wide or narrow
  local soonest = redis.call('ZRANGE', H, 0, 0, 'WITHSCORES')
  local wait = soonest[2] and tonumber(soonest[2]) - now or 1000
  if relearning then
    wait = relearning_ms
  end
  answer[1], answer[2], answer[3], answer[4] = scopes[narrow], used[narrow], limits[narrow], math.max(wait, 0)
end
return answer
