-- Extend leases by their ttl from now; where asked, shrink their weight.
--
-- ARGV    triples: token, ttl_ms (0: the ttl it was acquired with), weight (0: keep; a greater one than held: keep)
-- Returns now_ms, then for each triple: outcome, remaining_ms, weight, record ('' unless it is extended).
-- Outcome 1 extended, 2 lost, 3 extended only to the end of its longest life, 4 not known, but the pool relearns: who has
--         a ticket may come back with restore.lua
-- Keeps   an expired lease is never revived, whether it is reaped yet or not; weight never grows; freed weight goes to
--         waiters.
-- Cost    O(log n) per item.

local latest, shrunk = 0, false
local answer = {now}

local function extend(token, ttl, keep_weight, record, fence, owner, job, weight, own_ttl, born, max_until, ...)
  local expires, outcome = now + (ttl > 0 and ttl or own_ttl), 1
  if max_until > 0 and expires >= max_until then
    expires, outcome = max_until, 3
  end
  redis.call('ZADD', H, 'XX', whole(expires), token)
  if keep_weight > 0 and keep_weight < weight then
    record = pack(fence, owner, job, keep_weight, own_ttl, born, max_until, ...)
    redis.call('HSET', L, token, record)
    uncharge(weight - keep_weight, ...)
    shrunk = true
    audit('shrink', token, fence, keep_weight, table.concat({...}, ','), owner, job, '')
    weight = keep_weight
  end
  latest = math.max(latest, expires)
  return outcome, expires - now, weight, record
end

-- Tell whether an unknown token may be one that this server has lost; once per call.
local relearning
local function may_be_forgotten(token)
  if redis.call('ZSCORE', H, token) or redis.call('ZSCORE', X, token) then
    return false
  end
  if relearning == nil then
    local _, learns = recall()
    relearning = learns
  end
  return relearning
end

for i = 1, #ARGV, 3 do
  local token = ARGV[i]
  local record = remaining_of(token) and redis.call('HGET', L, token)
  local outcome, left, weight = 2, 0, 0
  if record then
    outcome, left, weight, record = extend(token, tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]), record,
      cmsgpack.unpack(record))
  elseif may_be_forgotten(token) then
    outcome = 4
  else
    audit('renew_lost', token, 0, 0, '', '', '', '')
  end
  local at = #answer
  answer[at + 1], answer[at + 2], answer[at + 3], answer[at + 4] = outcome, left, weight, record or ''
end
if latest > 0 then
  keep_all(latest)
end
if shrunk then
  dispatch()
  close_queue()
end
return answer
