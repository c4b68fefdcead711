"""Rules of slots: values, the policy cache and the use-cases. No IO, no wire format."""
