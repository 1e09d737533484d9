    -- The cluster as it could be used at a time: the domain of every node and how many GPUs the node could offer. What
    -- domain a node was in when its cluster had first been reported in full (topology_from) stands for all time before.
    homes AS
    (
        SELECT node, if(valid_from <= {topology_from:DateTime64(3, 'UTC')}, toDateTime64(0, 3, 'UTC'), valid_from) AS since, valid_to AS until, domain
        FROM membership FINAL
        WHERE cluster = {cluster:String} AND domain != '' AND valid_to > {topology_from:DateTime64(3, 'UTC')}
          AND since <= {last:DateTime64(3, 'UTC')} AND until > {first:DateTime64(3, 'UTC')}
    ),
    offers AS -- usable -1: not known
    (
        SELECT node, valid_from AS since, valid_to AS until, multiIf(gpus_usable IS NOT NULL, toInt64(gpus_usable), schedulable = 0, 0, -1) AS usable
        FROM node_states FINAL
        WHERE cluster = {cluster:String} AND valid_from <= {last:DateTime64(3, 'UTC')} AND valid_to > {first:DateTime64(3, 'UTC')}
    )
