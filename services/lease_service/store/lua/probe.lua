-- Do what a grant does, on a pool of its own: proves that this server runs scripts and takes writes.
--
-- ARGV    none
-- Returns Redis time in milliseconds.
-- Keeps   only the probe pool's key is written; it expires by itself.
-- Cost    O(1).

redis.call('SET', E, '- - 0 0', 'PX', 10000)
return now
