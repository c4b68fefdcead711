-- Give leases back. Every token is spent for 30 s, so that an acquire which arrives later, or again, is refused.
--
-- ARGV    tokens
-- Returns for each token: 1 a live lease was freed, 0 it was not, -1 it had expired and was removed now; then how many
--         milliseconds it was held (0 unless freed).
-- Keeps   only the named tokens are touched; releasing twice frees once. A token that waits stops waiting; what is freed
--         goes to waiters.
-- Cost    O(S + log n) per token.

local queue = somebody_waits() and open_queue()
local answer = {}
for i = 1, #ARGV do
  local token = ARGV[i]
  local expires = redis.call('ZSCORE', H, token)
  local freed, held = 0, 0
  if not expires then
    if queue then
      queue.leave(token)
    end
    redis.call('ZADD', X, 'GT', whole(now + SPENT_MS), token)
  elseif tonumber(expires) > now then
    freed, held = 1, now - (drop('release', token, now, '') or now)
  else
    freed = -1
    drop('expire', token, now, 'late release')
  end
  answer[#answer + 1] = freed
  answer[#answer + 1] = math.max(held, 0)
end
keep(X, now)
if queue then
  queue.dispatch()
  queue.close()
end
return answer
