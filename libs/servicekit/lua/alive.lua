#!lua
-- Prove that this server takes writes, without writing.
-- KEYS: none. ARGV: none.
-- Returns: the server's time in whole seconds.
-- Invariant: a script whose first line has no flags is refused by a replica, by a server that can't save and by one
-- that is out of memory, so that an answer means "would write". Cost: O(1).
return tonumber(redis.call('TIME')[1])
