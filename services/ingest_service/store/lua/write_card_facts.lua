-- Write a card's facts unless later ones are there: writers may overtake each other after their commits.
-- KEYS[1] card:<id>
-- ARGV: version, account_id, lifecycle, polling_enabled (1 or 0), network_status, realname_status, lifetime in seconds
-- Returns 1 written, 0 later facts are there.
-- Invariant: the hash always holds all fields of one version. Cost: O(1).
local stored = redis.call('HGET', KEYS[1], 'version')
if stored and tonumber(stored) > tonumber(ARGV[1]) then
  return 0
end
redis.call('HSET', KEYS[1], 'version', ARGV[1], 'account_id', ARGV[2], 'lifecycle', ARGV[3], 'polling_enabled', ARGV[4],
  'network_status', ARGV[5], 'realname_status', ARGV[6])
redis.call('EXPIRE', KEYS[1], ARGV[7])
return 1
