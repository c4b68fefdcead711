-- Read some waiters, lane by lane.
--
-- ARGV    1 mark of the last waiter read before, '' for the first  2 most to read
-- Returns rows: mark, token, tenant, its tag, its place (the microsecond of joining), shape ("priority weight scope,scope"),
--         owner, job, age_ms, remaining_ms, virtual cost.
-- Keeps   changes nothing.
-- Cost    O(log q + read).

local rows, queue = {}, open_queue()
local marks = redis.call('ZRANGEBYLEX', Q, ARGV[1] == '' and '-' or '(' .. ARGV[1], '+', 'LIMIT', 0, ARGV[2])
for i = 1, #marks do
  local token = string.sub(marks[i], 33)
  local packed = redis.call('HGET', W, token)
  if packed then
    local waiter = cmsgpack.unpack(packed)
    local tenant = queue.tenant_of(waiter.tenant)
    rows[#rows + 1] = {marks[i], token, tenant.name, digits(tenant.tag, 20), waiter.seq, waiter.shape, waiter.owner, waiter.job,
      math.max(now - math.floor(tonumber(waiter.seq) / 1000), 0), math.max(waiter.deadline - now, 0), waiter.cost}
  end
end
return rows
