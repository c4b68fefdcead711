-- Schema of the local span store (SQLite): spans, and beside them what they can be found by.
-- Params: none. Invariant: span_row is spans.id, so that everything about the oldest spans goes together.
-- Cost: done once per connection.
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
PRAGMA busy_timeout = 5000;
CREATE TABLE IF NOT EXISTS spans (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  trace_id TEXT NOT NULL,
  span_id TEXT NOT NULL,
  parent_span_id TEXT,
  name TEXT NOT NULL,
  kind TEXT NOT NULL,
  service TEXT NOT NULL,
  start_ns INTEGER NOT NULL,
  end_ns INTEGER NOT NULL,
  status TEXT NOT NULL,
  status_text TEXT NOT NULL,
  attributes TEXT NOT NULL,
  events TEXT NOT NULL,
  links TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS spans_trace_id ON spans (trace_id);
CREATE TABLE IF NOT EXISTS span_attributes (
  span_row INTEGER NOT NULL,
  name TEXT NOT NULL,
  value TEXT NOT NULL,
  PRIMARY KEY (span_row, name, value)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS span_attributes_value ON span_attributes (value, name, span_row);
CREATE TABLE IF NOT EXISTS span_links (
  span_row INTEGER NOT NULL,
  trace_id TEXT NOT NULL,
  PRIMARY KEY (span_row, trace_id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS span_links_trace_id ON span_links (trace_id, span_row);
