-- Forget audit events that are stored elsewhere; an emptied stream is removed, so that idle pools keep no key.
--
-- ARGV    1 id of the last stored event
-- Returns events left.
-- Keeps   events after that id stay.
-- Cost    O(removed).

local milliseconds, sequence = string.match(ARGV[1], '^(%d+)-(%d+)$')
redis.call('XTRIM', A, 'MINID', milliseconds .. '-' .. whole(tonumber(sequence) + 1))
local left = redis.call('XLEN', A)
if left == 0 then
  redis.call('DEL', A)
end
return left
