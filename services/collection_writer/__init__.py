"""Stores what every poll returned, in batches, once per observation.

Owns the tables ``collection_record`` (with its partitions) and ``collection_quarantine`` and the view
``report.collection_record_v1``; consumes the topic ``card.collection``. It never changes or judges a record: what a
reading means is the business of ingest_service.
"""
