-- Let an account rest: nothing of it is claimed by any replica meanwhile.
-- KEYS[1] state (hash)
-- ARGV[1] how long from now, ms
-- Returns the remaining rest, ms.
-- Invariant: a shorter rest never ends a longer one early.
-- Cost: O(1).
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local until_ms = math.max(now + tonumber(ARGV[1]), tonumber(redis.call('HGET', KEYS[1], 'blocked') or 0))
redis.call('HSET', KEYS[1], 'blocked', string.format('%.0f', until_ms))
return until_ms - now
