-- Say what every scope of a pool holds.
--
-- ARGV    1 most leases to look at, soonest to expire first; then the scopes
-- Returns fence, milliseconds of relearning left, then for each scope: stored policy or '', used, holders, ms to next expiry,
--         requests that wait for it.
-- Keeps   removes at most 32 expired leases, as every acquire does; changes nothing else.
-- Cost    O(looked at).

if reap() > 0 then
  pass_on()
end
local holders, soonest, waiting = {}, {}, {}
local function note(left, _, _, _, _, _, _, _, ...)
  for i = 1, select('#', ...) do
    local scope = select(i, ...)
    holders[scope] = (holders[scope] or 0) + 1
    soonest[scope] = soonest[scope] or left
  end
end

local live = redis.call('ZRANGEBYSCORE', H, whole(now + 1), '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[1])
for i = 1, #live, 2 do
  local record = redis.call('HGET', L, live[i])
  if record then
    note(tonumber(live[i + 1]) - now, cmsgpack.unpack(record))
  end
end
local fence, learning_ms = redis.call('GET', F), 0
if fence then
  learning_ms = select(3, recall())
end
local answer = {tonumber(fence or 0), learning_ms}
local stored = redis.call('HGETALL', K)
for i = 1, #stored, 2 do
  for scope in string.gmatch(string.match(stored[i], '(%S+)$'), '[^,]+') do
    waiting[scope] = (waiting[scope] or 0) + cmsgpack.unpack(stored[i + 1]).count
  end
end
for i = 2, #ARGV do
  local scope, at = ARGV[i], #answer
  answer[at + 1] = redis.call('HGET', P, scope) or ''
  answer[at + 2] = tonumber(redis.call('HGET', U, scope) or 0)
  answer[at + 3] = holders[scope] or 0
  answer[at + 4] = soonest[scope] or 0
  answer[at + 5] = waiting[scope] or 0
end
return answer
