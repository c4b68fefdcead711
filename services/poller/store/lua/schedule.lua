-- Put cards of one account on the schedule.
-- KEYS[1] due (sorted set)
-- ARGV[1] poll interval, ms; ARGV[2] longest claim, ms; ARGV[3...] cards
-- Returns how many were new or moved.
-- Invariant: a card that is on the schedule stays where it is, unless its turn lies further ahead than the interval allows
-- (the interval was shortened); then it gets its next regular turn. New cards get theirs: no burst.
-- Cost: O(cards log n).
local function next_turn(card, now, interval)
    local offset = tonumber(string.sub(redis.sha1hex(card), 1, 12), 16) % interval
    return now - (now - offset) % interval + interval
end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local interval = tonumber(ARGV[1])
local furthest = now + math.max(interval, tonumber(ARGV[2])) + 1000
local changed = 0
for i = 3, #ARGV do
    local score = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[i]) or -1)
    if score < 0 or score > furthest then
        redis.call('ZADD', KEYS[1], string.format('%.0f', next_turn(ARGV[i], now, interval)), ARGV[i])
        changed = changed + 1
    end
end
return changed
