-- Forget audit events that are stored elsewhere; an emptied stream is removed, so that idle pools keep no key.
--
-- ARGV    1 id of the last stored event; 0-0 forgets none and removes a stream that was emptied before
-- Returns events left.
-- Keeps   events after that id stay. A removed stream forgets its last id, so it goes only when the clock has left that
--         id's millisecond: else the next event would get an id that was stored before, and be taken for it.
-- Cost    O(removed).

local milliseconds, sequence = string.match(ARGV[1], '^(%d+)-(%d+)$')
redis.call('XTRIM', A, 'MINID', milliseconds .. '-' .. whole(tonumber(sequence) + 1))
local left = redis.call('XLEN', A)
if left == 0 and redis.call('EXISTS', A) == 1 then
  local facts = redis.call('XINFO', 'STREAM', A)
  for place = 1, #facts, 2 do
    if facts[place] == 'last-generated-id' and now > tonumber(string.match(facts[place + 1], '^%d+')) then
      redis.call('DEL', A)
    end
  end
end
return left
