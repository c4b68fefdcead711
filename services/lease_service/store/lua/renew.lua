-- Extend leases by their ttl from now; where asked, shrink their weight.
--
-- ARGV    triples: token, ttl_ms (0: the ttl it was acquired with), weight (0: keep; a greater one than held: keep)
-- Returns now_ms, then for each triple: outcome, remaining_ms, weight, record ('' unless it is extended).
-- Outcome 1 extended, 2 lost, 3 extended only to the end of its longest life, 4 not known, but the pool relearns: who has
--         a ticket may come back with restore.lua
-- Keeps   an expired lease is never revived, whether it is reaped yet or not; weight never grows; freed weight goes to
--         waiters.
-- Cost    O(log n) per item; three commands for all of them together, since a command costs more than its work.

local tokens, count = {}, #ARGV / 3
for i = 1, count do
  tokens[i] = ARGV[3 * i - 2]
end
local expiries = redis.call('ZMSCORE', H, unpack(tokens))
local records = redis.call('HMGET', L, unpack(tokens))
local latest, extended, smaller = 0, {}, {}

local function shrink(token, keep_weight, fence, owner, job, weight, ttl, born, max_until, ...)
  local record = pack(fence, owner, job, keep_weight, ttl, born, max_until, ...)
  redis.call('HSET', L, token, record)
  uncharge(weight - keep_weight, ...)
  audit('shrink', token, fence, keep_weight, table.concat({...}, ','), owner, job, '')
  smaller[token] = record
  return record
end

local function extend(token, ttl, keep_weight, record)
  local _, _, _, weight, own_ttl, _, max_until = cmsgpack.unpack(record)
  local expires, outcome = now + (ttl > 0 and ttl or own_ttl), 1
  if max_until > 0 and expires >= max_until then
    expires, outcome = max_until, 3
  end
  local at = #extended
  extended[at + 1], extended[at + 2] = whole(expires), token
  if keep_weight > 0 and keep_weight < weight then
    record, weight = shrink(token, keep_weight, cmsgpack.unpack(record)), keep_weight
  end
  latest = math.max(latest, expires)
  return outcome, expires - now, weight, record
end

-- Tell whether an unknown token may be one that this server has lost; once per call.
local relearning
local function may_be_forgotten(token, expires)
  if expires or redis.call('ZSCORE', X, token) then
    return false
  end
  if relearning == nil then
    local _, learns = recall()
    relearning = learns
  end
  return relearning
end

local answer = {now}
for i = 1, count do
  local token, expires = tokens[i], expiries[i] and tonumber(expiries[i])
  local record = expires and expires > now and (smaller[token] or records[i])
  local outcome, left, weight = 2, 0, 0
  if record then
    outcome, left, weight, record = extend(token, tonumber(ARGV[3 * i - 1]), tonumber(ARGV[3 * i]), record)
  elseif may_be_forgotten(token, expires) then
    outcome = 4
  else
    audit('renew_lost', token, 0, 0, '', '', '', '')
  end
  local at = 4 * i - 3
  answer[at + 1], answer[at + 2], answer[at + 3], answer[at + 4] = outcome, left, weight, record or ''
end
if latest > 0 then
  redis.call('ZADD', H, 'XX', unpack(extended))
  keep_all(latest)
end
if next(smaller) then
  pass_on()
end
return answer
