package main

import (
	"sort"
	"strings"

	"conformance/wire"

	"github.com/IBM/sarama"
)

var kinds = map[string]sarama.ConfigResourceType{"topic": sarama.TopicResource, "broker": sarama.BrokerResource}

var sources = map[sarama.ConfigSource]string{
	sarama.SourceTopic: "DYNAMIC_TOPIC_CONFIG", sarama.SourceDynamicBroker: "DYNAMIC_BROKER_CONFIG",
	sarama.SourceDynamicDefaultBroker: "DYNAMIC_DEFAULT_BROKER_CONFIG", sarama.SourceStaticBroker: "STATIC_BROKER_CONFIG",
	sarama.SourceDefault: "DEFAULT_CONFIG",
}

var operationsOfConfigs = map[string]sarama.IncrementalAlterConfigsOperation{
	"set":      sarama.IncrementalAlterConfigsOperationSet,
	"delete":   sarama.IncrementalAlterConfigsOperationDelete,
	"append":   sarama.IncrementalAlterConfigsOperationAppend,
	"subtract": sarama.IncrementalAlterConfigsOperationSubtract,
}

// administration is each admin call under the name of its operation; a client is made at the first.
func administration(d *driver) wire.Operations {
	var client sarama.Client
	var admin sarama.ClusterAdmin
	calls := map[string]func(sarama.Client, sarama.ClusterAdmin, wire.Args) (any, error){
		"create_topic": createTopic, "delete_topic": deleteTopic, "list_topics": listTopics,
		"describe_topic": describeTopic, "create_partitions": createPartitions, "delete_records": deleteRecords,
		"describe_configs": describeConfigs, "alter_configs": alterConfigs, "incremental_alter": incrementalAlter,
		"describe_cluster": describeCluster, "list_groups": listGroups, "describe_group": describeGroup,
		"delete_group": deleteGroup, "alter_offsets": alterOffsets, "fetch_offsets": fetchOffsets,
		"delete_offsets": deleteOffsets, "list_offsets": listOffsets, "describe_log_dirs": describeLogDirs,
	}
	operations := wire.Operations{}
	for name, call := range calls {
		operations[name] = func(args wire.Args) (any, error) {
			if admin == nil {
				var err error
				if client, err = sarama.NewClient(d.bootstrap, config()); err != nil {
					return nil, err
				}
				if admin, err = sarama.NewClusterAdminFromClient(client); err != nil {
					return nil, err
				}
			}
			return call(client, admin, args)
		}
	}
	return operations
}

func pointers(configs map[string]string) map[string]*string {
	given := map[string]*string{}
	for name, value := range configs {
		given[name] = &value
	}
	return given
}

func createTopic(_ sarama.Client, admin sarama.ClusterAdmin, args wire.Args) (any, error) {
	return nil, admin.CreateTopic(args.Topic, &sarama.TopicDetail{
		NumPartitions: args.Partitions, ReplicationFactor: args.Replicas, ConfigEntries: pointers(args.Configs),
	}, false)
}

func deleteTopic(_ sarama.Client, admin sarama.ClusterAdmin, args wire.Args) (any, error) {
	return nil, admin.DeleteTopic(args.Topic)
}

func listTopics(_ sarama.Client, admin sarama.ClusterAdmin, _ wire.Args) (any, error) {
	found, err := admin.ListTopics()
	names := []string{}
	for name := range found {
		names = append(names, name)
	}
	sort.Strings(names)
	return names, err
}

func describeTopic(_ sarama.Client, admin sarama.ClusterAdmin, args wire.Args) (any, error) {
	found, err := admin.DescribeTopics([]string{args.Topic})
	if err != nil {
		return nil, err
	}
	if found[0].Err != sarama.ErrNoError {
		return nil, found[0].Err
	}
	partitions := []map[string]any{}
	for _, each := range found[0].Partitions {
		if each.Err != sarama.ErrNoError {
			return nil, each.Err
		}
		partitions = append(partitions, map[string]any{
			"id": each.ID, "leader": each.Leader, "replicas": each.Replicas, "isr": each.Isr, "epoch": each.LeaderEpoch,
		})
	}
	sort.Slice(partitions, func(i, j int) bool { return partitions[i]["id"].(int32) < partitions[j]["id"].(int32) })
	hasID := found[0].Uuid != sarama.Uuid{}
	return map[string]any{"internal": found[0].IsInternal, "has id": hasID, "partitions": partitions}, nil
}

func createPartitions(_ sarama.Client, admin sarama.ClusterAdmin, args wire.Args) (any, error) {
	return nil, admin.CreatePartitions(args.Topic, args.Total, nil, false)
}

func deleteRecords(client sarama.Client, admin sarama.ClusterAdmin, args wire.Args) (any, error) {
	if err := admin.DeleteRecords(args.Topic, map[int32]int64{args.Partition: args.BeforeOffset}); err != nil {
		return nil, err
	}
	return client.GetOffset(args.Topic, args.Partition, sarama.OffsetOldest)
}

func describeConfigs(_ sarama.Client, admin sarama.ClusterAdmin, args wire.Args) (any, error) {
	found, err := admin.DescribeConfig(sarama.ConfigResource{Type: kinds[args.Kind], Name: args.Name})
	if err != nil {
		return nil, err
	}
	entries := map[string]any{}
	for _, each := range found {
		entries[each.Name] = map[string]any{
			"value": each.Value, "source": sources[each.Source], "sensitive": each.Sensitive, "read only": each.ReadOnly,
		}
	}
	return entries, nil
}

func alterConfigs(_ sarama.Client, admin sarama.ClusterAdmin, args wire.Args) (any, error) {
	return nil, admin.AlterConfig(kinds[args.Kind], args.Name, pointers(args.Configs), false)
}

func incrementalAlter(_ sarama.Client, admin sarama.ClusterAdmin, args wire.Args) (any, error) {
	entries := map[string]sarama.IncrementalAlterConfigsEntry{}
	for _, change := range args.Changes {
		entries[change[1]] = sarama.IncrementalAlterConfigsEntry{
			Operation: operationsOfConfigs[change[0]], Value: &change[2],
		}
	}
	return nil, admin.IncrementalAlterConfig(kinds[args.Kind], args.Name, entries, false)
}

func describeCluster(_ sarama.Client, admin sarama.ClusterAdmin, _ wire.Args) (any, error) {
	brokers, controller, err := admin.DescribeCluster()
	nodes := []int32{}
	for _, each := range brokers {
		nodes = append(nodes, each.ID())
	}
	return map[string]any{"nodes": nodes, "controller": controller}, err
}

func listGroups(_ sarama.Client, admin sarama.ClusterAdmin, _ wire.Args) (any, error) {
	found, err := admin.ListConsumerGroups()
	names := []string{}
	for name := range found {
		names = append(names, name)
	}
	sort.Strings(names)
	return names, err
}

func describeGroup(_ sarama.Client, admin sarama.ClusterAdmin, args wire.Args) (any, error) {
	found, err := admin.DescribeConsumerGroups([]string{args.Group})
	if err != nil {
		return nil, err
	}
	group := found[0]
	if group.Err != sarama.ErrNoError {
		return nil, group.Err
	}
	members := []map[string]any{}
	for _, each := range group.Members {
		count := 0
		if assigned, err := each.GetMemberAssignment(); err == nil && assigned != nil {
			for _, partitions := range assigned.Topics {
				count += len(partitions)
			}
		}
		members = append(members, map[string]any{"instance": each.GroupInstanceId, "partitions": count})
	}
	return map[string]any{
		"state": strings.ToUpper(group.State), "protocol": group.Protocol, "protocol type": group.ProtocolType,
		"members": members,
	}, nil
}

func deleteGroup(_ sarama.Client, admin sarama.ClusterAdmin, args wire.Args) (any, error) {
	return nil, admin.DeleteConsumerGroup(args.Group)
}

func alterOffsets(_ sarama.Client, admin sarama.ClusterAdmin, args wire.Args) (any, error) {
	wanted := map[string]map[int32]sarama.OffsetAndMetadata{}
	for _, each := range args.Offsets {
		if wanted[each.Topic] == nil {
			wanted[each.Topic] = map[int32]sarama.OffsetAndMetadata{}
		}
		wanted[each.Topic][each.Partition] = sarama.OffsetAndMetadata{Offset: each.At, LeaderEpoch: -1}
	}
	answer, err := admin.AlterConsumerGroupOffsets(args.Group, wanted, nil)
	if err != nil {
		return nil, err
	}
	for _, partitions := range answer.Errors {
		for _, each := range partitions {
			if each != sarama.ErrNoError {
				return nil, each
			}
		}
	}
	return nil, nil
}

func fetchOffsets(_ sarama.Client, admin sarama.ClusterAdmin, args wire.Args) (any, error) {
	found, err := admin.ListConsumerGroupOffsets(args.Group, nil)
	if err != nil {
		return nil, err
	}
	rows := []wire.Offset{}
	for topic, partitions := range found.Blocks {
		for partition, block := range partitions {
			if block.Err != sarama.ErrNoError {
				return nil, block.Err
			}
			rows = append(rows, wire.Offset{Pair: wire.Pair{Topic: topic, Partition: partition}, At: block.Offset})
		}
	}
	return rows, nil
}

func deleteOffsets(_ sarama.Client, admin sarama.ClusterAdmin, args wire.Args) (any, error) {
	return nil, admin.DeleteConsumerGroupOffset(args.Group, args.Topic, args.Partition)
}

func listOffsets(client sarama.Client, _ sarama.ClusterAdmin, args wire.Args) (any, error) {
	switch at := args.At.(type) {
	case float64:
		return client.GetOffset(args.Topic, args.Partition, int64(at))
	case string:
		if at == "max-timestamp" {
			return nil, wire.Unavailable("sarama has no look-up of the greatest timestamp")
		}
		places := map[string]int64{"earliest": sarama.OffsetOldest, "latest": sarama.OffsetNewest}
		return client.GetOffset(args.Topic, args.Partition, places[at])
	}
	return nil, wire.Unavailable("no such place")
}

func describeLogDirs(_ sarama.Client, admin sarama.ClusterAdmin, args wire.Args) (any, error) {
	found, err := admin.DescribeLogDirs([]int32{1})
	rows := []map[string]any{}
	for _, directories := range found {
		for _, directory := range directories {
			for _, topic := range directory.Topics {
				for _, each := range topic.Partitions {
					if topic.Topic == args.Topic {
						rows = append(rows, map[string]any{
							"partition": each.PartitionID, "size": each.Size, "lag": each.OffsetLag, "future": each.IsTemporary,
						})
					}
				}
			}
		}
	}
	sort.Slice(rows, func(i, j int) bool { return rows[i]["partition"].(int32) < rows[j]["partition"].(int32) })
	return rows, err
}
