"""The management routes, grouped by subject.

In: typed values from `framework`.
Out: records and commands of the registry.
Open first: the folder of the noun: `accounts`, `projects`, `data`, `events`, `modules`, `chain` or
`node`.
"""
