-- Read one page of live leases, soonest to expire first.
--
-- ARGV    1 expires_ms and 2 token of the last lease of the page before (0 and '' for the first), 3 page size
-- Returns rows: token, expires_ms, remaining_ms, age_ms, fence, owner, job, weight, scopes joined by commas.
-- Keeps   changes nothing.
-- Cost    O(log n + page + leases that expire in the same millisecond).

local from, after, page = math.max(tonumber(ARGV[1]), now + 1), ARGV[2], tonumber(ARGV[3])
local boundary = tonumber(ARGV[1])
local rows, offset = {}, 0

local function row(token, expires, fence, owner, job, weight, ttl, born, max_until, ...)
  return {token, expires, expires - now, math.max(now - born, 0), fence, owner, job, weight, table.concat({...}, ',')}
end

while #rows < page do
  local chunk = redis.call('ZRANGEBYSCORE', H, whole(from), '+inf', 'WITHSCORES', 'LIMIT', offset, page)
  if #chunk == 0 then
    break
  end
  for i = 1, #chunk, 2 do
    local token, expires = chunk[i], tonumber(chunk[i + 1])
    local record = not (expires == boundary and token <= after) and redis.call('HGET', L, token)
    if record and #rows < page then
      rows[#rows + 1] = row(token, expires, cmsgpack.unpack(record))
    end
  end
  offset = offset + page
end
return rows
