"""The statements of the local span store (SQLite)."""

SCHEMA = """
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
"""
"""Spans, and beside them what they can be found by. ``span_row`` is ``spans.id``; rows go oldest first."""

_COLUMNS = (
    "trace_id, span_id, parent_span_id, name, kind, service, "
    "start_ns, end_ns, status, status_text, attributes, events, links"
)

INSERT_SPAN = f"INSERT INTO spans ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608
INSERT_ATTRIBUTE = "INSERT OR IGNORE INTO span_attributes (span_row, name, value) VALUES (?, ?, ?)"
INSERT_LINK = "INSERT OR IGNORE INTO span_links (span_row, trace_id) VALUES (?, ?)"

SPANS_BY_ATTRIBUTE = f"""
SELECT {_COLUMNS} FROM spans
WHERE id IN (SELECT span_row FROM span_attributes WHERE name = ? AND value = ? ORDER BY span_row DESC LIMIT ?)
ORDER BY id DESC
"""  # noqa: S608
"""Parameters: attribute name, value, most spans."""

SPANS_OF_TRACES = f"""
SELECT {_COLUMNS} FROM spans
WHERE trace_id IN (SELECT value FROM json_each(?))
ORDER BY start_ns, id
"""  # noqa: S608
"""Parameter: a JSON list of trace ids."""

LINKED_TRACES = """
SELECT DISTINCT l.trace_id FROM spans s JOIN span_links l ON l.span_row = s.id
WHERE s.trace_id IN (SELECT value FROM json_each(?)) LIMIT ?
"""
"""Which traces do these link to? Parameters: a JSON list of trace ids, most answers."""

LINKING_TRACES = """
SELECT DISTINCT s.trace_id FROM span_links l JOIN spans s ON s.id = l.span_row
WHERE l.trace_id IN (SELECT value FROM json_each(?)) LIMIT ?
"""
"""Which traces link to these? Parameters: a JSON list of trace ids, most answers."""

OLDEST_TO_KEEP = """
SELECT CASE WHEN bound > first THEN bound END FROM (
  SELECT
    first,
    min(
      first + :most,
      max(
        (SELECT coalesce(max(id), 0) - :max_rows + 1 FROM spans),
        coalesce((SELECT id FROM spans WHERE end_ns >= :oldest_ns ORDER BY id LIMIT 1), last + 1)
      )
    ) AS bound
  FROM (SELECT coalesce(min(id), 0) AS first, coalesce(max(id), 0) AS last FROM spans)
)
"""
"""The first row to keep, or NULL when nothing has to go; at most ``most`` rows go at once."""

DELETE_SPANS = "DELETE FROM spans WHERE id < ?"
DELETE_ATTRIBUTES = "DELETE FROM span_attributes WHERE span_row < ?"
DELETE_LINKS = "DELETE FROM span_links WHERE span_row < ?"
