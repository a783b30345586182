package main

import (
	"context"
	"sort"
	"strconv"
	"strings"

	"conformance/wire"

	"github.com/twmb/franz-go/pkg/kadm"
)

var operationsOfConfigs = map[string]kadm.IncrementalOp{
	"set": kadm.SetConfig, "delete": kadm.DeleteConfig, "append": kadm.AppendConfig, "subtract": kadm.SubtractConfig,
}

// administration is each admin call under the name of its operation; a client is made at the first.
func administration(d *driver) wire.Operations {
	var admin *kadm.Client
	calls := map[string]func(context.Context, *kadm.Client, wire.Args) (any, error){
		"create_topic": createTopic, "delete_topic": deleteTopic, "list_topics": listTopics,
		"describe_topic": describeTopic, "create_partitions": createPartitions, "delete_records": deleteRecords,
		"describe_configs": describeConfigs, "alter_configs": alterConfigs, "incremental_alter": incrementalAlter,
		"describe_cluster": describeCluster, "list_groups": listGroups, "describe_group": describeGroup,
		"delete_group": deleteGroup, "alter_offsets": alterOffsets, "fetch_offsets": fetchOffsets,
		"delete_offsets": deleteOffsets, "list_offsets": listOffsets, "describe_log_dirs": describeLogDirs,
		"describe_producers": describeProducers, "list_config_resources": listConfigResources,
		"describe_features": describeFeatures, "describe_transaction": describeTransaction,
		"list_transactions": listTransactions,
	}
	operations := wire.Operations{}
	for name, call := range calls {
		operations[name] = func(args wire.Args) (any, error) {
			if admin == nil {
				client, err := d.client()
				if err != nil {
					return nil, err
				}
				admin = kadm.NewClient(client)
			}
			ctx, cancel := within(patience)
			defer cancel()
			return call(ctx, admin, args)
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

func createTopic(ctx context.Context, admin *kadm.Client, args wire.Args) (any, error) {
	made, err := admin.CreateTopic(ctx, args.Partitions, args.Replicas, pointers(args.Configs), args.Topic)
	if err == nil {
		err = made.Err
	}
	return nil, err
}

func deleteTopic(ctx context.Context, admin *kadm.Client, args wire.Args) (any, error) {
	gone, err := admin.DeleteTopic(ctx, args.Topic)
	if err == nil {
		err = gone.Err
	}
	return nil, err
}

func listTopics(ctx context.Context, admin *kadm.Client, _ wire.Args) (any, error) {
	found, err := admin.ListTopics(ctx)
	return found.Names(), err
}

func describeTopic(ctx context.Context, admin *kadm.Client, args wire.Args) (any, error) {
	found, err := admin.ListTopics(ctx, args.Topic)
	if err != nil {
		return nil, err
	}
	topic := found[args.Topic]
	if topic.Err != nil {
		return nil, topic.Err
	}
	partitions := []map[string]any{}
	for _, each := range topic.Partitions.Sorted() {
		if each.Err != nil {
			return nil, each.Err
		}
		partitions = append(partitions, map[string]any{
			"id": each.Partition, "leader": each.Leader, "replicas": each.Replicas, "isr": each.ISR,
			"offline": each.OfflineReplicas, "epoch": each.LeaderEpoch,
		})
	}
	hasID := topic.ID != kadm.TopicID{}
	return map[string]any{"internal": topic.IsInternal, "has id": hasID, "partitions": partitions}, nil
}

func createPartitions(ctx context.Context, admin *kadm.Client, args wire.Args) (any, error) {
	made, err := admin.UpdatePartitions(ctx, int(args.Total), args.Topic)
	if err == nil {
		err = made[args.Topic].Err
	}
	return nil, err
}

func deleteRecords(ctx context.Context, admin *kadm.Client, args wire.Args) (any, error) {
	before := kadm.Offsets{}
	before.Add(kadm.Offset{Topic: args.Topic, Partition: args.Partition, At: args.BeforeOffset})
	gone, err := admin.DeleteRecords(ctx, before)
	if err != nil {
		return nil, err
	}
	one := gone[args.Topic][args.Partition]
	return one.LowWatermark, one.Err
}

func brokerOf(name string) int32 {
	id, err := strconv.Atoi(name)
	if err != nil {
		panic(err)
	}
	return int32(id)
}

func describeConfigs(ctx context.Context, admin *kadm.Client, args wire.Args) (any, error) {
	var found kadm.ResourceConfigs
	var err error
	if args.Kind == "topic" {
		found, err = admin.DescribeTopicConfigs(ctx, args.Name)
	} else {
		found, err = admin.DescribeBrokerConfigs(ctx, brokerOf(args.Name))
	}
	if err != nil {
		return nil, err
	}
	if found[0].Err != nil {
		return nil, found[0].Err
	}
	entries := map[string]any{}
	for _, each := range found[0].Configs {
		entries[each.Key] = map[string]any{
			"value": each.Value, "source": each.Source.String(), "sensitive": each.Sensitive, "read only": false,
		}
	}
	return entries, nil
}

func alterConfigs(ctx context.Context, admin *kadm.Client, args wire.Args) (any, error) {
	configs := []kadm.AlterConfig{}
	for name, value := range args.Configs {
		configs = append(configs, kadm.AlterConfig{Name: name, Value: &value})
	}
	if args.Kind == "topic" {
		return altered(admin.AlterTopicConfigsState(ctx, configs, args.Name))
	}
	return altered(admin.AlterBrokerConfigsState(ctx, configs, brokerOf(args.Name)))
}

func incrementalAlter(ctx context.Context, admin *kadm.Client, args wire.Args) (any, error) {
	configs := []kadm.AlterConfig{}
	for _, change := range args.Changes {
		config := kadm.AlterConfig{Op: operationsOfConfigs[change[0]], Name: change[1], Value: &change[2]}
		configs = append(configs, config)
	}
	if args.Kind == "topic" {
		return altered(admin.AlterTopicConfigs(ctx, configs, args.Name))
	}
	return altered(admin.AlterBrokerConfigs(ctx, configs, brokerOf(args.Name)))
}

func altered(answers kadm.AlterConfigsResponses, err error) (any, error) {
	if err == nil {
		err = answers[0].Err
	}
	return nil, err
}

func describeCluster(ctx context.Context, admin *kadm.Client, _ wire.Args) (any, error) {
	found, err := admin.BrokerMetadata(ctx)
	return map[string]any{
		"nodes": found.Brokers.NodeIDs(), "controller": found.Controller, "has cluster id": found.Cluster != "",
	}, err
}

func listGroups(ctx context.Context, admin *kadm.Client, _ wire.Args) (any, error) {
	found, err := admin.ListGroups(ctx)
	return found.Groups(), err
}

func describeGroup(ctx context.Context, admin *kadm.Client, args wire.Args) (any, error) {
	found, err := admin.DescribeGroups(ctx, args.Group)
	if err != nil {
		return nil, err
	}
	group := found[args.Group]
	if group.Err != nil {
		return nil, group.Err
	}
	members := []map[string]any{}
	for _, each := range group.Members {
		count := 0
		if assigned, ok := each.Assigned.AsConsumer(); ok {
			for _, topic := range assigned.Topics {
				count += len(topic.Partitions)
			}
		}
		members = append(members, map[string]any{"instance": each.InstanceID, "partitions": count})
	}
	return map[string]any{
		"state": strings.ToUpper(group.State), "protocol": group.Protocol, "protocol type": group.ProtocolType,
		"members": members,
	}, nil
}

func deleteGroup(ctx context.Context, admin *kadm.Client, args wire.Args) (any, error) {
	gone, err := admin.DeleteGroup(ctx, args.Group)
	if err == nil {
		err = gone.Err
	}
	return nil, err
}

func alterOffsets(ctx context.Context, admin *kadm.Client, args wire.Args) (any, error) {
	wanted := kadm.Offsets{}
	for _, each := range args.Offsets {
		wanted.Add(kadm.Offset{Topic: each.Topic, Partition: each.Partition, At: each.At, LeaderEpoch: -1})
	}
	return nil, admin.CommitAllOffsets(ctx, args.Group, wanted)
}

func fetchOffsets(ctx context.Context, admin *kadm.Client, args wire.Args) (any, error) {
	found, err := admin.FetchOffsets(ctx, args.Group)
	rows := []wire.Offset{}
	found.Each(func(each kadm.OffsetResponse) {
		pair := wire.Pair{Topic: each.Topic, Partition: each.Partition}
		rows = append(rows, wire.Offset{Pair: pair, At: each.At})
		if err == nil {
			err = each.Err
		}
	})
	return rows, err
}

func deleteOffsets(ctx context.Context, admin *kadm.Client, args wire.Args) (any, error) {
	wanted := kadm.TopicsSet{}
	wanted.Add(args.Topic, args.Partition)
	gone, err := admin.DeleteOffsets(ctx, args.Group, wanted)
	if err == nil {
		err = gone.Error()
	}
	return nil, err
}

func listOffsets(ctx context.Context, admin *kadm.Client, args wire.Args) (any, error) {
	var found kadm.ListedOffsets
	var err error
	switch at := args.At.(type) {
	case float64:
		found, err = admin.ListOffsetsAfterMilli(ctx, int64(at), args.Topic)
	case string:
		calls := map[string]func(context.Context, ...string) (kadm.ListedOffsets, error){
			"earliest": admin.ListStartOffsets, "latest": admin.ListEndOffsets, "last-stable": admin.ListCommittedOffsets,
			"max-timestamp": admin.ListMaxTimestampOffsets,
		}
		found, err = calls[at](ctx, args.Topic)
	}
	if err != nil {
		return nil, err
	}
	one := found[args.Topic][args.Partition]
	return one.Offset, one.Err
}

func describeLogDirs(ctx context.Context, admin *kadm.Client, args wire.Args) (any, error) {
	wanted := kadm.TopicsSet{}
	wanted.Add(args.Topic)
	found, err := admin.DescribeAllLogDirs(ctx, wanted)
	if err != nil {
		return nil, err
	}
	rows := []map[string]any{}
	for _, directories := range found {
		if err := directories.Error(); err != nil {
			return nil, err
		}
		for _, each := range directories.SortedPartitions() {
			rows = append(rows, map[string]any{
				"partition": each.Partition, "size": each.Size, "lag": each.OffsetLag, "future": each.IsFuture,
			})
		}
	}
	sort.Slice(rows, func(i, j int) bool { return rows[i]["partition"].(int32) < rows[j]["partition"].(int32) })
	return rows, nil
}

func describeProducers(ctx context.Context, admin *kadm.Client, args wire.Args) (any, error) {
	wanted := kadm.TopicsSet{}
	wanted.Add(args.Topic, args.Partition)
	found, err := admin.DescribeProducers(ctx, wanted)
	if err != nil {
		return nil, err
	}
	one := found[args.Topic].Partitions[args.Partition]
	rows := []map[string]any{}
	for _, each := range one.ActiveProducers.Sorted() {
		rows = append(rows, map[string]any{
			"epoch": each.ProducerEpoch, "last sequence": each.LastSequence, "has time": each.LastTimestamp > 0,
			"coordinator epoch": each.CoordinatorEpoch, "transaction": each.CurrentTxnStartOffset,
		})
	}
	return rows, one.Err
}

func describeTransaction(ctx context.Context, admin *kadm.Client, args wire.Args) (any, error) {
	found, err := admin.DescribeTransactions(ctx, args.ID)
	if err != nil {
		return nil, err
	}
	one := found[args.ID]
	if one.Err != nil {
		return nil, one.Err
	}
	partitions := []int32{}
	one.Topics.Each(func(_ string, partition int32) { partitions = append(partitions, partition) })
	sort.Slice(partitions, func(i, j int) bool { return partitions[i] < partitions[j] })
	return map[string]any{
		"state": one.State, "epoch": one.ProducerEpoch, "timeout ms": one.TimeoutMillis,
		"has begun": one.StartTimestamp > 0, "partitions": partitions,
	}, nil
}

func listTransactions(ctx context.Context, admin *kadm.Client, args wire.Args) (any, error) {
	found, err := admin.ListTransactions(ctx, nil, args.States)
	rows := [][2]string{}
	for _, each := range found.Sorted() {
		rows = append(rows, [2]string{each.TxnID, each.State})
	}
	return rows, err
}

func listConfigResources(ctx context.Context, admin *kadm.Client, _ wire.Args) (any, error) {
	found, err := admin.ListConfigResources(ctx)
	if err == nil {
		err = found.Err
	}
	rows := [][2]string{}
	for _, each := range found.Sorted() {
		rows = append(rows, [2]string{each.Type.String(), each.Name})
	}
	return rows, err
}

func describeFeatures(ctx context.Context, admin *kadm.Client, _ wire.Args) (any, error) {
	found, err := admin.ApiVersions(ctx)
	if err != nil {
		return nil, err
	}
	features := map[string]int16{}
	for _, broker := range found.Sorted() {
		if broker.Err != nil {
			return nil, broker.Err
		}
		for _, feature := range broker.Raw().FinalizedFeatures {
			features[feature.Name] = feature.MaxVersionLevel
		}
	}
	return features, nil
}
