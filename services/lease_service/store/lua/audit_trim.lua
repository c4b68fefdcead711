-- Forget audit events that are stored elsewhere; an emptied stream is removed, so that idle pools keep no key.
--
-- ARGV    1 id of the last stored event
-- Returns events left.
-- Keeps   events after that id stay. A removed stream forgets its last id, so it goes only when the clock has left that
--         id's millisecond: else the next event would get an id that was stored before, and be taken for it.
-- Cost    O(removed).

local milliseconds, sequence = string.match(ARGV[1], '^(%d+)-(%d+)$')
redis.call('XTRIM', A, 'MINID', milliseconds .. '-' .. whole(tonumber(sequence) + 1))
local left = redis.call('XLEN', A)
if left == 0 and now > tonumber(milliseconds) then
  redis.call('DEL', A)
end
return left
