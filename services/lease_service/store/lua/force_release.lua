-- Take one lease away from its holder, or send one waiter away, and raise the pool's fence.
--
-- ARGV    1 token  2 actor and reason, for the audit  3 channel on which every replica hears of it
-- Returns 1 when a live lease was freed or a waiter sent away, else 0; the pool's fence after the call.
-- Keeps   writes under the taken fence can be told from later ones: the fence rises even if nobody is granted after it.
--         A pool that lost its data stays without a fence: that is how the next acquire notices.
-- Cost    O(S + log n).

local token = ARGV[1]
local live = remaining_of(token)
local queue = somebody_waits() and open_queue()
local waiter = queue and queue.leave(token)
local fence = tonumber(redis.call('GET', F) or 0)
drop('force', token, now, ARGV[2])
keep(X, now)
if fence > 0 then
  fence = math.max(fence + 1, now_us)
  redis.call('SET', F, whole(fence))
end
if waiter then
  audit('force', token, 0, 0, '', waiter.owner, waiter.job, ARGV[2])
end
redis.call('PUBLISH', ARGV[3], string.match(H, '{(.*)}') .. ' ' .. token .. ' 0')
if queue then
  queue.dispatch()
  queue.close()
end
return {(live or waiter) and 1 or 0, fence}
