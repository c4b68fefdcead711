"""The bundled bounded worker: runs exports.

Responsible for turning one export request into one published result, in constant memory and bounded time, whatever
dies in between. Owns the objects under ``exports/`` of the export store and writes no table: the pointer row is written
by task_api with the task's completion.

It must never publish a second result for an export id, read a table other than the ``report`` views, or go on writing
after its claim is lost.
"""
