"""`sluicegate up`: every engine and service on this machine, supervised, in one terminal."""
