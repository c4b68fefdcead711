-- Remove expired leases and tombstones, and grant what has become free; several replicas may run it at once.
--
-- ARGV    1 most tombstones to remove
-- Returns reaped, 1 when more expired leases are left, live leases.
-- Keeps   a live lease is never touched; see queue.lua.
-- Cost    O(reaped * log n + tombstones).

local reaped = reap()
local queue, more = somebody_waits() and open_queue(), false
if queue then
  more = select(2, queue.dispatch())
  queue.close()
end
local spent = redis.call('ZRANGEBYSCORE', X, '-inf', whole(now), 'LIMIT', 0, ARGV[1])
if #spent > 0 then
  redis.call('ZREM', X, unpack(spent))
end
local left = redis.call('ZCOUNT', H, '-inf', whole(now))
return {reaped, (more or left > 0) and 1 or 0, redis.call('ZCARD', H) - left}
