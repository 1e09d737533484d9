-- The newest generation of a cluster's membership, 0 when there is none. Parameter: cluster.
SELECT max(generation) FROM membership WHERE cluster = {cluster:String}
