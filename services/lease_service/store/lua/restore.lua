-- Write down again leases that this server has lost, from their holders' tickets, while the pool relearns.
--
-- ARGV    quintuples: token, until_ms (when the lease ends unless renewed, from the ticket), record (from the ticket),
--         ttl_ms (0: the ttl it was acquired with), weight to keep (0: all)
-- Returns now_ms, then for each: outcome, remaining_ms, weight, record ('' unless it holds a lease).
-- Outcome 1 restored or extended, 2 lost, 3 likewise, but only to the end of its longest life
-- Keeps   nothing is granted: the lease was, and has not ended; an expired, released or taken one stays lost. The fence
--         rises to the ticket's. Used weight may pass a capacity only by what was released but is still written down here.
-- Cost    O(S + log n) per item.

local answer, latest = {now}, 0
local fence, learns = recall()
local highest = fence

local function restore(token, until_ms, ttl, keep_weight, its_fence, owner, job, weight, own_ttl, born, max_until, ...)
  local expires, outcome = now + (ttl > 0 and ttl or own_ttl), 1
  if max_until > 0 and expires >= max_until then
    expires, outcome = max_until, 3
  end
  if until_ms <= now or expires <= now then
    return 2, 0, 0, ''
  end
  if keep_weight > 0 and keep_weight < weight then
    weight = keep_weight
  end
  local record = pack(its_fence, owner, job, weight, own_ttl, born, max_until, ...)
  redis.call('ZADD', H, whole(expires), token)
  redis.call('HSET', L, token, record)
  for i = 1, select('#', ...) do
    redis.call('HINCRBY', U, select(i, ...), whole(weight))
  end
  audit('restore', token, its_fence, weight, table.concat({...}, ','), owner, job, '')
  highest = math.max(highest, its_fence)
  latest = math.max(latest, expires)
  return outcome, expires - now, weight, record
end

for i = 1, #ARGV, 5 do
  local token = ARGV[i]
  local outcome, left, weight, record = 2, 0, 0, ''
  local known = redis.call('ZSCORE', H, token)
  if known and tonumber(known) > now then
    outcome, left, record = 1, tonumber(known) - now, redis.call('HGET', L, token) or ''
    weight = select(4, cmsgpack.unpack(record))
  elseif learns and not known and not redis.call('ZSCORE', X, token) then
    outcome, left, weight, record = restore(token, tonumber(ARGV[i + 1]), tonumber(ARGV[i + 3]), tonumber(ARGV[i + 4]),
      cmsgpack.unpack(ARGV[i + 2]))
  end
  if outcome == 2 then
    audit('renew_lost', token, 0, 0, '', '', '', '')
  end
  local at = #answer
  answer[at + 1], answer[at + 2], answer[at + 3], answer[at + 4] = outcome, left, weight, record
end
if highest > fence then
  redis.call('SET', F, whole(highest))
end
if latest > 0 then
  keep_all(latest)
end
return answer
