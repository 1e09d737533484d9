// Package kafka is the hop between collectors and the loader: it makes the contract's topics, sends records to them and
// reads them by partition. It never looks into a record beyond the rules of the contract and never decides what a
// record means.
package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/spillway-io/spillway/internal/engine"
	"github.com/spillway-io/spillway/schemas/event"
)

// TopicConfig is the `topics` block of the configuration: how the contract's topics are made. Those that exist are left as
// they are.
type TopicConfig struct {
	Partitions  int           `yaml:"partitions"`  // of each topic made; loaders scale out to this many
	Replication int           `yaml:"replication"` // copies of each partition
	Retention   time.Duration `yaml:"retention"`   // how long a broker keeps a record; it bounds how long ClickHouse may be down
}

// DefaultTopicConfig fits one loader: what it reads from two partitions costs twice the inserts while little comes, and one
// carries more than it can load.
func DefaultTopicConfig() TopicConfig {
	return TopicConfig{Partitions: 1, Replication: 1, Retention: 7 * 24 * time.Hour}
}

// Validate says what cannot be.
func (c TopicConfig) Validate() error {
	if c.Partitions < 1 || c.Replication < 1 || c.Retention < time.Minute {
		return fmt.Errorf("topics: partitions %d and replication %d must be at least 1, retention %s at least 1m",
			c.Partitions, c.Replication, c.Retention)
	}
	return nil
}

// EnsureTopics makes the contract's topics that a broker does not have yet and returns when each has a leader, which it
// waits for a moment; see Passing for which of its errors are worth another try.
func EnsureTopics(ctx context.Context, k engine.Kafka, c TopicConfig) error {
	if err := c.Validate(); err != nil {
		return err
	}
	if err := reach(ctx, k); err != nil {
		return err
	}
	transport := k.Transport()
	defer transport.CloseIdleConnections()
	client := &kafka.Client{Addr: kafka.TCP(k.Brokers...), Transport: transport, Timeout: 10 * time.Second}
	req := &kafka.CreateTopicsRequest{}
	for _, topic := range event.Topics() {
		req.Topics = append(req.Topics, kafka.TopicConfig{
			Topic: topic, NumPartitions: c.Partitions, ReplicationFactor: c.Replication,
			ConfigEntries: []kafka.ConfigEntry{
				{ConfigName: "retention.ms", ConfigValue: strconv.FormatInt(c.Retention.Milliseconds(), 10)},
				{ConfigName: "compression.type", ConfigValue: "producer"},
			},
		})
	}
	resp, err := client.CreateTopics(ctx, req)
	if err != nil {
		return fmt.Errorf("make topics on %v: %w", k.Brokers, explained(k, err))
	}
	for topic, err := range resp.Errors {
		switch {
		case err == nil, errors.Is(err, kafka.TopicAlreadyExists):
		case errors.Is(err, kafka.TopicAuthorizationFailed), errors.Is(err, kafka.ClusterAuthorizationFailed):
			// A broker says so also of a topic that is there.
			meta, asked := client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
			if asked != nil {
				return fmt.Errorf("look for topic %s: %w", topic, explained(k, asked))
			}
			if found := meta.Topics[0].Error; errors.Is(found, kafka.UnknownTopicOrPartition) || found != nil && !Passing(found) {
				return fmt.Errorf("make topic %s: %w: allow this user to create topics, or make it before: %d partitions, %d copies, retention.ms=%d",
					topic, err, c.Partitions, c.Replication, c.Retention.Milliseconds())
			}
		default:
			return fmt.Errorf("make topic %s: %w", topic, explained(k, err))
		}
	}
	return waitForLeaders(ctx, client, k)
}

// waitForLeaders polls until every partition of the contract's topics can be written to.
func waitForLeaders(ctx context.Context, client *kafka.Client, k engine.Kafka) error {
	ctx, cancel := context.WithTimeout(ctx, networkLimit)
	defer cancel()
	for {
		meta, err := client.Metadata(ctx, &kafka.MetadataRequest{Topics: event.Topics()})
		if err == nil && len(meta.Topics) == len(event.Topics()) {
			err = leaderless(meta)
			if err == nil {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for leaders of the topics on %v: %w", k.Brokers, errors.Join(ctx.Err(), err))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func leaderless(meta *kafka.MetadataResponse) error {
	for _, t := range meta.Topics {
		if t.Error != nil {
			return fmt.Errorf("topic %s: %w", t.Name, t.Error)
		}
		for _, p := range t.Partitions {
			if p.Error != nil || p.Leader.Host == "" {
				return fmt.Errorf("topic %s partition %d has no leader at %s", t.Name, p.ID,
					net.JoinHostPort(p.Leader.Host, strconv.Itoa(p.Leader.Port)))
			}
		}
	}
	return nil
}
