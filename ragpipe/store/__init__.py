"""What is on disk: run folders, the journal, seals, and the call store: replies by the hash of their question, and what was paid.

`run_folder` names the files of a run, `run_tables` reads them, `call_store` is the door to the replies.
"""
