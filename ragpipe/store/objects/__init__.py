"""Files that are not on this machine: addresses, the drivers that read and write them, and their copies here."""
