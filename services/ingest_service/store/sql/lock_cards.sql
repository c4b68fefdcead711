-- Lock the cards of a batch, in order of their ids: batches with common cards wait for each other and never deadlock.
-- $1 text[] card ids.
-- Returns nothing of use: state is read by a LATER statement, because this one's snapshot may be older than its locks.
-- Cost: one index probe and one row lock per card.
SELECT card_id FROM card WHERE card_id = ANY ($1::text[]) ORDER BY card_id FOR NO KEY UPDATE
