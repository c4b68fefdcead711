-- Compare the used weights with the leases and repair them where they differ.
--
-- ARGV    1 most leases to count; a larger pool is left alone
-- Returns how many scopes were repaired, or -1 when the pool was left alone.
-- Keeps   afterwards u[scope] = sum of weights of the records that name it, and h and l hold the same tokens.
-- Cost    O(n), about 1 microsecond per lease.

local live = redis.call('ZCARD', H)
if live + redis.call('HLEN', L) > 2 * tonumber(ARGV[1]) then
  return -1
end
local sums = {}
local function add(_, _, _, weight, _, _, _, ...)
  for i = 1, select('#', ...) do
    local scope = select(i, ...)
    sums[scope] = (sums[scope] or 0) + weight
  end
end
local orphans, records = {}, redis.call('HGETALL', L)
for i = 1, #records, 2 do
  if redis.call('ZSCORE', H, records[i]) then
    add(cmsgpack.unpack(records[i + 1]))
  else
    orphans[#orphans + 1] = records[i]
  end
end
for i = 1, #orphans do
  redis.call('HDEL', L, orphans[i])
end
local repaired, used = #orphans > 0 and 1 or 0, redis.call('HGETALL', U)
for i = 1, #used, 2 do
  local right = sums[used[i]] or 0
  sums[used[i]] = nil
  if tonumber(used[i + 1]) ~= right then
    repaired = repaired + 1
    redis.call('HDEL', U, used[i])
    if right > 0 then
      redis.call('HSET', U, used[i], whole(right))
    end
  end
end
for scope, right in pairs(sums) do
  repaired = repaired + 1
  redis.call('HSET', U, scope, whole(right))
end
if repaired > 0 then
  keep(U, now)
  local latest = redis.call('ZRANGE', H, -1, -1, 'WITHSCORES')
  if latest[2] then
    keep(U, tonumber(latest[2]))
  end
end
return repaired
