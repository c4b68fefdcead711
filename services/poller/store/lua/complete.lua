-- End claims of one account.
-- KEYS[1] due (sorted set), KEYS[2] published (hash)
-- ARGV[1] poll interval, ms; then per card five: card, lease_until_ms of its claim, what next ('turn' the next regular turn,
-- 'at' an instant, 'in' a delay, 'remove' off the schedule), that instant or delay in ms (0 if none), observed_at in ms of
-- what was handed on (-1 if nothing was)
-- Returns, in order, 1 for each claim that was still held and 0 for each that was not.
-- Invariant: only the claim's holder moves the card: a claim that ran out, or a card taken off the schedule, changes nothing.
-- Cost: O(cards log n).
local function next_turn(card, now, interval)
    local offset = tonumber(string.sub(redis.sha1hex(card), 1, 12), 16) % interval
    return now - (now - offset) % interval + interval
end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local interval = tonumber(ARGV[1])
local result = {}
for i = 2, #ARGV, 5 do
    local card, fence, what, instant = ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2], tonumber(ARGV[i + 3])
    local score = tonumber(redis.call('ZSCORE', KEYS[1], card) or -1)
    local held = score == fence
    if held and what == 'remove' then
        redis.call('ZREM', KEYS[1], card)
        redis.call('HDEL', KEYS[2], card)
    elseif held then
        local due = instant
        if what == 'turn' then
            due = next_turn(card, now, interval)
        elseif what == 'in' then
            due = now + instant
        end
        redis.call('ZADD', KEYS[1], string.format('%.0f', due), card)
        if tonumber(ARGV[i + 4]) >= 0 then
            redis.call('HSET', KEYS[2], card, ARGV[i + 4])
        end
    end
    result[#result + 1] = held and 1 or 0
end
return result
