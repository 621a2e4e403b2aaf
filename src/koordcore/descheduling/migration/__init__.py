"""May it be migrated now: filter, arbitration and limits of migration jobs."""
