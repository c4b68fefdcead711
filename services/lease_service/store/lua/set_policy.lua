-- Push policies of a pool, so that a replica with older ones in its cache can't use them.
--
-- ARGV    1 "1" when the pool is new (it then starts without relearning), else "0"
--         then pairs: scope, "version capacity max_lifetime_ms paused".
-- Returns how many were newer than the stored ones.
-- Keeps   versions never fall; what has become free goes to waiters.
-- Cost    O(S).

local changed = 0
for i = 2, #ARGV, 2 do
  local stored = redis.call('HGET', P, ARGV[i])
  if not stored or tonumber(string.match(stored, '^%d+')) < tonumber(string.match(ARGV[i + 1], '^%d+')) then
    redis.call('HSET', P, ARGV[i], ARGV[i + 1])
    changed = changed + 1
  end
end
keep(P, now)
if ARGV[1] == '1' and redis.call('SET', F, whole(now_us), 'NX') then
  write_epoch(0, 0)
end
pass_on()
return changed
