-- Claim due cards of one account.
-- KEYS[1] due (sorted set), KEYS[2] state (hash)
-- ARGV[1] most cards; ARGV[2] lease, ms; ARGV[3] poll interval, ms; ARGV[4] gap, ms: a longer time without claims counts as
-- downtime; ARGV[5] most cards to realign in this call
-- Returns {now_ms, blocked_ms, next_due_ms (or -1), realigned, lease_until_ms, card, due_ms, ...}.
-- Invariant: a card is in one caller's hands until its lease ends: its score is the lease's end, so whoever dies loses it by
-- time alone. After downtime, cards that fell due meanwhile go to their next regular turn: the load stays spread, no burst.
-- Cost: O((claimed + realigned) log n).
local function next_turn(card, now, interval)
    local offset = tonumber(string.sub(redis.sha1hex(card), 1, 12), 16) % interval
    return now - (now - offset) % interval + interval
end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local limit, lease, interval = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local state = redis.call('HMGET', KEYS[2], 'seen', 'realign', 'blocked')
local seen, realign, blocked = tonumber(state[1] or now), tonumber(state[2] or 0), tonumber(state[3] or 0)

if blocked > now then
    return {now, blocked - now, -1, 0, 0}
end
if now - seen > tonumber(ARGV[4]) then
    realign = now
    redis.call('HSET', KEYS[2], 'realign', string.format('%.0f', realign))
end
redis.call('HSET', KEYS[2], 'seen', string.format('%.0f', now))

local realigned = 0
if realign > 0 then
    local late = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', string.format('(%.0f', realign), 'LIMIT', 0, ARGV[5])
    for _, card in ipairs(late) do
        redis.call('ZADD', KEYS[1], string.format('%.0f', next_turn(card, now, interval)), card)
    end
    realigned = #late
    if realigned < tonumber(ARGV[5]) then
        redis.call('HDEL', KEYS[2], 'realign')
    end
end

local lease_until = now + lease
local result = {now, 0, -1, realigned, lease_until}
local claimed = {}
if limit > 0 then
    claimed = redis.call(
        'ZRANGEBYSCORE', KEYS[1], string.format('%.0f', realign), string.format('%.0f', now), 'WITHSCORES', 'LIMIT', 0, limit)
end
for i = 1, #claimed, 2 do
    redis.call('ZADD', KEYS[1], string.format('%.0f', lease_until), claimed[i])
    result[#result + 1] = claimed[i]
    result[#result + 1] = tonumber(claimed[i + 1])
end
local first = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
if first[2] then
    result[3] = tonumber(first[2])
end
return result
