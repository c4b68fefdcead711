-- migrate:up

-- Owned by lease_service: slot_ticket_key.

-- The key with which every replica signs the tickets of leases; made by the first one that starts. Deleting the row and
-- restarting every replica makes all tickets worthless: leases that Redis loses afterwards are lost.
CREATE TABLE slot_ticket_key (
    only_row boolean     NOT NULL DEFAULT true,
    key      bytea       NOT NULL,
    made_at  timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT slot_ticket_key_key PRIMARY KEY (only_row),
    CONSTRAINT slot_ticket_key_one CHECK (only_row),
    CONSTRAINT slot_ticket_key_length CHECK (length(key) = 32)
);

-- migrate:down

DROP TABLE slot_ticket_key;
