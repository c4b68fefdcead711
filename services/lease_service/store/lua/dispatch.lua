-- Grant to waiters what is free.
--
-- ARGV    1 longest ttl ever granted in the pool, which may end its relearning; 0 when that is not known
-- Returns reaped, 1 when there is more to do, live leases, ms until the next lease, deadline or end of relearning (0: none of
--         these), waiters.
-- Keeps   see queue.lua.
-- Cost    O(reaped * log n + lanes per grant).

local reaped = reap()
local longest = tonumber(ARGV[1])
local queue, more = somebody_waits() and open_queue(), false
if queue then
  more = select(2, queue.dispatch(longest > 0 and longest or nil))
  queue.close()
end
local first = redis.call('ZRANGE', H, 0, 0, 'WITHSCORES')
local overdue = redis.call('ZRANGE', D, 0, 0, 'WITHSCORES')
local soonest = math.min(tonumber(first[2]) or math.huge, tonumber(overdue[2]) or math.huge)
if overdue[2] then
  local _, _, relearning_ms = recall()
  soonest = relearning_ms > 0 and math.min(soonest, now + relearning_ms) or soonest
end
local left = redis.call('ZCOUNT', H, '-inf', whole(now))
more = more or left > 0
return {reaped, more and 1 or 0, redis.call('ZCARD', H) - left,
  soonest < math.huge and math.max(soonest - now, 1) or 0, redis.call('HLEN', W)}
