-- Make cards of one account due now.
-- KEYS[1] due (sorted set), KEYS[2] published (hash)
-- ARGV[1] longest claim, ms; ARGV[2...] cards
-- Returns how many were moved.
-- Invariant: never touches a claim: a claimed card's score lies within the longest claim from now, and a card that is due so
-- soon needs no haste. A card that is not on the schedule is not put there. The instant is noted as if something had been
-- handed on: a card whose gateway gives no answer is not hastened again and again.
-- Cost: O(cards log n).
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local moved = 0
for i = 2, #ARGV do
    local score = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[i]) or -1)
    if score > now + tonumber(ARGV[1]) then
        redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[i])
        redis.call('HSET', KEYS[2], ARGV[i], string.format('%.0f', now))
        moved = moved + 1
    end
end
return moved
