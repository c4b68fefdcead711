-- Put after the prelude of every script that frees units or lets somebody wait.
--
-- Waiters of one shape (priority, weight, scopes) form a lane: they fit or do not fit together, so a dispatch looks at lanes,
-- never at a backlog. In a lane every tenant has a line of its own, first come first served. Between tenants the one with
-- the smallest tag is next: a tag is the virtual time at which the tenant has had its share, and rises with every grant by
-- weight / share. A tenant that comes back starts at the clock (the tag granted last) or at its old tag, whichever is later.
--
-- q  ZSET all 0: lane(8) tenant(8) seq(16) token        a lane's lines; seq is the microsecond of joining
-- o  ZSET all 0: lane(8) tag(20) seq(16) tenant(8)      each lane's tenants, next one first; lane IDLE: those that do not
--                                                       wait but are ahead of the clock, kept until it has passed them
-- w  HASH token -> waiter                               d  ZSET token -> deadline_ms
-- k  HASH "priority weight scope,scope" -> lane         t  HASH "=" -> gate, "@name" -> tenant's id, "#id" -> tenant,
--                                                          "~channel" -> a replica that let a grant lapse
-- Invariants: q, w and d hold the same tokens; no waiter that fits is left unless the call says that there is more; with
--       the last waiter all keys but g go, so the clock begins anew.

local CONFIRM_MS = 3000         -- an unconfirmed grant lives this long
local RESERVE_AFTER_MS = 5000   -- a wide request first in order for this long keeps others off its limiting scope
local GRANTS_MOST = 64          -- grants of one call: bounds its time
local DROPS_MOST = 256          -- dead waiters passed by one call
local OLDEST_EVERY = 8          -- every such grant goes by tag alone, whatever the priority
local LANES_MOST = 256          -- different shapes that wait at once
local UNIT = 100000             -- virtual time of one unit at share 1
local IDLE = '00000000'

local function digits(value, width)
  return string.format('%0' .. width .. '.0f', value)
end

-- The operations of the queue; a function, so that calls without waiters do not pay for making them.
local function open_queue()
  local gate, lanes, tenants = nil, {}, {} -- what this call has read; close_queue writes it back

  local function the_gate()
    if not gate then
      local packed = redis.call('HGET', T, '=')
      gate = packed and cmsgpack.unpack(packed) or {clock = 0, turn = 0, seq = 0, ids = 0}
    end
    return gate
  end

  local function new_id()
    gate.ids = gate.ids + 1
    return digits(gate.ids, 8)
  end

  local function lane_of(shape)
    if not lanes[shape] then
      local packed = redis.call('HGET', K, shape)
      lanes[shape] = packed and cmsgpack.unpack(packed)
    end
    return lanes[shape]
  end

  local function tenant_of(id)
    if not tenants[id] then
      tenants[id] = cmsgpack.unpack(redis.call('HGET', T, '#' .. id))
    end
    return tenants[id]
  end

  -- Put a tenant where it belongs among a lane's tenants. The new place comes before the old one goes, so that the key, and
  -- with it its expiry, stays.
  local function seat(tenant, lane_id, member)
    local old = tenant.seats[lane_id]
    if old == member then
      return
    end
    if member then
      redis.call('ZADD', O, 0, member)
    end
    if old then
      redis.call('ZREM', O, old)
    end
    tenant.seats[lane_id] = member
  end

  local function seat_first(tenant, lane_id)
    local line = lane_id .. tenant.id
    local first = redis.call('ZRANGEBYLEX', Q, '[' .. line, '(' .. line .. ':', 'LIMIT', 0, 1)[1]
    seat(tenant, lane_id, first and lane_id .. digits(tenant.tag, 20) .. string.sub(first, 17, 32) .. tenant.id)
  end

  local function forget_tenant(tenant)
    seat(tenant, IDLE, nil)
    redis.call('HDEL', T, '#' .. tenant.id, '@' .. tenant.name)
  end

  local function save_tenant(tenant)
    if tenant.count > 0 then
      seat(tenant, IDLE, nil)
    elseif tenant.tag > gate.clock then
      seat(tenant, IDLE, IDLE .. digits(tenant.tag, 20) .. digits(0, 16) .. tenant.id)
    else
      return forget_tenant(tenant)
    end
    redis.call('HSET', T, '#' .. tenant.id, cmsgpack.pack(tenant))
  end

  -- Write back what has changed; every script that joins, leaves or dispatches ends with it.
  local function close_queue()
    if not gate then
      return
    end
    if redis.call('EXISTS', W) == 0 then
      redis.call('DEL', Q, O, W, D, K, T)
      return
    end
    for shape, lane in pairs(lanes) do
      if lane and lane.count > 0 then
        redis.call('HSET', K, shape, cmsgpack.pack(lane))
      elseif lane then
        redis.call('HDEL', K, shape)
      end
    end
    for _, tenant in pairs(tenants) do
      save_tenant(tenant)
    end
    local passed = redis.call('ZRANGEBYLEX', O, '[' .. IDLE, '(' .. IDLE .. digits(gate.clock, 20) .. ':', 'LIMIT', 0, 8)
    for i = 1, #passed do
      forget_tenant(tenant_of(string.sub(passed[i], 45)))
    end
    redis.call('HSET', T, '=', cmsgpack.pack(gate))
  end

  -- Take a waiter out of its line. Returns it and its tenant, or nil when the token does not wait. O(log q).
  local function leave(token)
    local packed = redis.call('HGET', W, token)
    if not packed then
      return nil
    end
    the_gate()
    local waiter = cmsgpack.unpack(packed)
    local lane, tenant = lane_of(waiter.shape), tenant_of(waiter.tenant)
    redis.call('HDEL', W, token)
    redis.call('ZREM', D, token)
    redis.call('ZREM', Q, lane.id .. tenant.id .. waiter.seq .. token)
    lane.count, tenant.count = lane.count - 1, tenant.count - 1
    seat_first(tenant, lane.id)
    return waiter, tenant
  end

  -- Let a token wait at the end of its tenant's line, or at the place that it had before (seq). Returns the waiter, or nil
  -- when a cap is reached. O(log q).
  local function join(token, shape, name, seq, caps, waiter)
    the_gate()
    local lane = lane_of(shape)
    local id = redis.call('HGET', T, '@' .. name)
    local tenant = id and tenant_of(id) or {count = 0, tag = 0, name = name, seats = {}}
    if redis.call('HLEN', W) >= caps.pool or tenant.count >= caps.tenant then
      return nil
    end
    if not lane then
      if redis.call('HLEN', K) >= LANES_MOST then
        return nil
      end
      lane = {id = new_id(), count = 0, seq = '', since = 0}
      lanes[shape] = lane
    end
    if not id then
      tenant.id = new_id()
      tenants[tenant.id] = tenant
      redis.call('HSET', T, '@' .. name, tenant.id)
    end
    if tenant.count == 0 then
      tenant.tag = math.max(tenant.tag, gate.clock)
    end
    if not seq then
      gate.seq = math.max(gate.seq + 1, now_us)
      seq = digits(gate.seq, 16)
    end
    waiter.shape, waiter.tenant, waiter.seq = shape, tenant.id, seq
    redis.call('HSET', W, token, cmsgpack.pack(waiter))
    redis.call('ZADD', D, whole(waiter.deadline), token)
    redis.call('ZADD', Q, 0, lane.id .. tenant.id .. seq .. token)
    lane.count, tenant.count = lane.count + 1, tenant.count + 1
    seat_first(tenant, lane.id)
    return waiter
  end

  -- Keep the queue's keys, and the policies that it needs, as long as its latest waiter may wait.
  local function keep_queue(until_ms)
    if redis.call('PEXPIRETIME', W) >= until_ms + LINGER_MS - KEEP_STEP_MS then
      return
    end
    for _, key in ipairs({Q, O, W, D, K, T, P}) do
      keep(key, until_ms)
    end
  end

  -- Tell the replica that answers for a waiter to look at it. Returns whether anybody heard it, where that can be known.
  local function wake(token, waiter, more)
    local pool = string.match(H, '{(.*)}')
    local heard = redis.call('PUBLISH', waiter.channel, pool .. ' ' .. token .. ' ' .. more)
    return heard > 0 or waiter.exact == 0
  end

  -- Lanes with waiters, and what their scopes allow and hold. Lanes stay packed until somebody looks closer.
  local function survey()
    local found, names, rooms = {}, {}, {}
    local stored = redis.call('HGETALL', K)
    for i = 1, #stored, 2 do
      local shape = stored[i]
      if not lanes[shape] or lanes[shape].count > 0 then
        local priority, weight, list = string.match(shape, '^(%S+) (%S+) (%S+)$')
        local view = {shape = shape, packed = stored[i + 1], priority = tonumber(priority), weight = tonumber(weight), scopes = {}}
        for scope in string.gmatch(list, '[^,]+') do
          view.scopes[#view.scopes + 1] = scope
          if not rooms[scope] then
            rooms[scope] = {}
            names[#names + 1] = scope
          end
        end
        found[#found + 1] = view
      end
    end
    if #names > 0 then
      local policies, used = redis.call('HMGET', P, unpack(names)), redis.call('HMGET', U, unpack(names))
      for i, name in ipairs(names) do
        local capacity, lifetime, paused = string.match(policies[i] or '0 0 0 1', '^%d+ (%d+) (%d+) (%d)')
        local room = rooms[name]
        room.capacity, room.lifetime, room.paused = tonumber(capacity), tonumber(lifetime), paused == '1'
        room.free = room.capacity - tonumber(used[i] or 0)
      end
    end
    return found, rooms
  end

  local function lane_in(view)
    lanes[view.shape] = lanes[view.shape] or cmsgpack.unpack(view.packed)
    return lanes[view.shape]
  end

  -- The scope with the least room, when a lane's next waiter does not fit; whether any of its scopes is paused.
  local function limits_of(view, rooms)
    local narrow, paused = nil, false
    for _, scope in ipairs(view.scopes) do
      local room = rooms[scope]
      paused = paused or room.paused
      if room.free < view.weight and (not narrow or room.free < rooms[narrow].free) then
        narrow = scope
      end
    end
    return narrow, paused
  end

  -- Tag and seq of a lane's next waiter, comparable as text; then its tenant's id.
  local function next_of(view)
    if not view.next then
      local id = lane_in(view).id
      local member = redis.call('ZRANGEBYLEX', O, '[' .. id, '(' .. id .. ':', 'LIMIT', 0, 1)[1]
      view.next, view.tenant = string.sub(member, 9, 44), string.sub(member, 45)
    end
    return view.next
  end

  local function wants(view, scope)
    for _, name in ipairs(view.scopes) do
      if name == scope then
        return true
      end
    end
    return false
  end

  local function is_first(view, views, scope)
    for _, other in ipairs(views) do
      if wants(other, scope) and lane_in(other).count > 0 and next_of(other) < next_of(view) then
        return false
      end
    end
    return true
  end

  -- Scopes that nobody may take from now, because a wide request has been first in order there for RESERVE_AFTER_MS.
  local function reservations(views, rooms)
    local reserved = {}
    for _, view in ipairs(views) do
      local narrow, paused = nil, false
      if view.weight > 1 and lane_in(view).count > 0 then
        narrow, paused = limits_of(view, rooms)
      end
      local room = narrow and rooms[narrow]
      if room and not paused and room.free > 0 and view.weight <= room.capacity and is_first(view, views, narrow) then
        local lane, seq = lane_in(view), string.sub(next_of(view), 21)
        if lane.seq ~= seq then
          lane.seq, lane.since = seq, now
        elseif now - lane.since >= RESERVE_AFTER_MS then
          reserved[narrow] = view
        end
      end
    end
    return reserved
  end

  -- Lanes that fit now. During one dispatch room only shrinks: no other lane can come to fit.
  local function fitting(views, rooms)
    local found = {}
    for _, view in ipairs(views) do
      local narrow, paused = limits_of(view, rooms)
      if not narrow and not paused then
        found[#found + 1] = view
      end
    end
    return found
  end

  -- The lane whose next waiter is to be granted, or nil when none fits.
  local function choose(views, rooms, reserved)
    local by_age = gate.turn % OLDEST_EVERY == OLDEST_EVERY - 1
    local best = nil
    for _, view in ipairs(views) do
      if lane_in(view).count > 0 and (by_age or not best or view.priority >= best.priority) then
        local fits = not limits_of(view, rooms)
        for _, scope in ipairs(view.scopes) do
          fits = fits and not reserved[scope]
        end
        if fits and best and (by_age or view.priority == best.priority) then
          fits = next_of(view) < next_of(best)
        end
        best = fits and view or best
      end
    end
    return best
  end

  local function grant_waiter(token, waiter, view, rooms, fence)
    local life, lifetime = math.min(waiter.ttl, CONFIRM_MS), 0
    for _, scope in ipairs(view.scopes) do
      local room = rooms[scope]
      room.free = room.free - view.weight
      redis.call('HINCRBY', U, scope, whole(view.weight))
      if room.lifetime > 0 and (lifetime == 0 or room.lifetime < lifetime) then
        lifetime = room.lifetime
      end
    end
    local max_until = lifetime > 0 and now + lifetime or 0
    life = lifetime > 0 and math.min(life, lifetime) or life
    redis.call('ZADD', H, whole(now + life), token)
    redis.call('HSET', L, token,
      pack(fence, waiter.owner, waiter.job, view.weight, waiter.ttl, now, max_until, unpack(view.scopes)))
    redis.call('HSET', G, token, waiter.channel)
    audit('grant', token, fence, view.weight, table.concat(view.scopes, ','), waiter.owner, waiter.job, 'queued')
  end

  local function charge_tenant(tenant, cost)
    gate.clock = math.max(gate.clock, tenant.tag)
    tenant.tag = tenant.tag + cost
    for lane_id in pairs(tenant.seats) do
      seat_first(tenant, lane_id)
    end
  end

  -- Grant to waiters until none fits. Nobody is granted whose deadline is over, whose replica is gone, or let a grant lapse:
  -- those leave the queue, and are told, in case they live. Returns reserved scopes and whether more could be granted by
  -- another call; that is also told to the replica of the last one granted. `longest` as for recall. O(lanes) per grant.
  local function dispatch(longest)
    if redis.call('EXISTS', W) == 0 then
      return {}, false
    end
    the_gate()
    local overdue = redis.call('ZRANGEBYSCORE', D, '-inf', whole(now), 'LIMIT', 0, REAP_MOST)
    for i = 1, #overdue do
      leave(overdue[i])
    end
    local fence, _, relearning_ms = recall(longest)
    if relearning_ms > 0 then
      return {}, false
    end
    if redis.call('EXISTS', H) == 0 then
      redis.call('DEL', U, L)
    end
    local views, rooms = survey()
    local granted, dropped, more = 0, 0, false
    local reserved = reservations(views, rooms)
    local candidates = fitting(views, rooms)
    local best = choose(candidates, rooms, reserved)
    while best do
      next_of(best)
      local place = lane_in(best).id .. best.tenant .. string.sub(best.next, 21)
      local token = string.sub(redis.call('ZRANGEBYLEX', Q, '[' .. place, '+', 'LIMIT', 0, 1)[1], 33)
      local waiter, tenant = leave(token)
      more = granted + 1 >= GRANTS_MOST or dropped + 1 >= DROPS_MOST
      local suspected = redis.call('HEXISTS', T, '~' .. waiter.channel) == 1
      if waiter.deadline > now and wake(token, waiter, more and 1 or 0) and not suspected then
        fence = math.max(fence + 1, now_us)
        grant_waiter(token, waiter, best, rooms, fence)
        charge_tenant(tenant, waiter.cost)
        granted, gate.turn = granted + 1, gate.turn + 1
      else
        dropped = dropped + 1
      end
      for _, view in ipairs(views) do
        view.next = nil
      end
      reserved = reservations(views, rooms)
      best = not more and choose(candidates, rooms, reserved)
    end
    if granted > 0 then
      redis.call('SET', F, whole(fence))
      keep_all(now + CONFIRM_MS)
      keep(G, now + CONFIRM_MS)
    end
    return reserved, more
  end

  return {dispatch = dispatch, join = join, leave = leave, wake = wake, keep = keep_queue, close = close_queue,
    tenant_of = tenant_of}
end

local function somebody_waits()
  return redis.call('EXISTS', W) == 1
end

-- Let what has become free go to waiters.
local function pass_on(longest)
  if somebody_waits() then
    local queue = open_queue()
    queue.dispatch(longest)
    queue.close()
  end
end
