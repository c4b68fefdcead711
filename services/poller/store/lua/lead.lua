-- Become or stay the holder of a role.
-- KEYS[1] the role
-- ARGV[1] who asks; ARGV[2] for how long, ms
-- Returns 1 for the holder, 0 for everybody else.
-- Invariant: one holder at a time; a holder that stops asking loses the role when its time is over.
-- Cost: O(1).
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then
    return 0
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
