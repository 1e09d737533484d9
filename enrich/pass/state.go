package pass

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	schema "github.com/spillway-io/spillway/schemas/clickhouse"
)

// partitionOf names one Kafka partition behind a raw table.
type partitionOf struct {
	table     string
	partition int32
}

// runState is what the passes remember from one to the next. All of it can be read again from the tables.
type runState struct {
	ready bool

	next      map[partitionOf]int64 // first offset not judged yet
	watermark uint64                // version of the last pass that finished
	finishing uint64                // version of the last pass whose progress was sent, stored or not
	unclean   bool                  // rows of a pass that did not finish may exist
	seen      map[string]uint64     // rows of the raw tables when all of them were judged; nil: not known
	clusters  map[string]*cluster   // what is in memory of them
	rulings   rulings
	writing   *writing // nil: nothing is on its way

	unseen   map[[2]string]compared // by cluster and source: what was told in full and compared with the tables
	unseenAt time.Time              // when source records were last looked at for that
}

// Name is what the passes are called in pass_progress.
const Name = "judge"

// load reads how far the passes have come.
func (p *Passes) load(ctx context.Context) error {
	s := &p.state
	if s.ready {
		return nil
	}
	s.next, s.clusters, s.watermark = map[partitionOf]int64{}, map[string]*cluster{}, 0
	rows, err := p.conn.Query(ctx, `SELECT raw_table, kafka_partition, next_offset, version FROM pass_progress
		WHERE pass = '`+Name+`' ORDER BY version DESC LIMIT 1 BY raw_table, kafka_partition`)
	if err != nil {
		return fmt.Errorf("read progress: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var key partitionOf
		var next int64
		var version uint64
		if err := rows.Scan(&key.table, &key.partition, &next, &version); err != nil {
			return fmt.Errorf("read progress: %w", err)
		}
		s.watermark = max(s.watermark, version)
		if key.table != progressMarker {
			s.next[key] = next
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read progress: %w", err)
	}
	s.ready, s.unclean = true, true
	return nil
}

// beginPass gives the rows of this pass a version above all before. Rows of a pass that did not finish may be newer than
// the last one that did, and the clock may have gone back.
func (p *Passes) beginPass(ctx context.Context) error {
	newest := p.state.watermark
	if p.state.unclean {
		for _, table := range []string{schema.TableMembership, schema.TableNodeStates, schema.TableAttempts, schema.TablePlacements, schema.TableVerdicts} {
			var v uint64
			if err := p.conn.QueryRow(ctx, "SELECT max(version) FROM "+table).Scan(&v); err != nil {
				return fmt.Errorf("read the newest version of %s: %w", table, err)
			}
			newest = max(newest, v)
		}
	}
	p.version = max(uint64(p.now().UnixMicro()), newest+1, p.version+1)
	return nil
}

// finish writes the progress of a pass: its last statement.
func (p *Passes) finish(ctx context.Context, b batch) error {
	w := &writer{table: schema.TablePassProgress}
	for _, r := range b {
		w.add(Name, r.Table, r.Partition, r.To, p.version)
	}
	w.add(Name, progressMarker, int32(0), int64(0), p.version)
	p.state.finishing = p.version
	if err := p.write(ctx, w); err != nil {
		return err
	}
	for _, r := range b {
		p.state.next[partitionOf{r.Table, r.Partition}] = r.To
	}
	p.state.watermark, p.state.unclean = p.version, false
	return nil
}

// rawTables are followed in this order.
var rawTables = []string{rawMembership, rawNodes, rawPlacements}

// Follows says that rows of a table are something to pass over.
func Follows(table string) bool { return slices.Contains(rawTables, table) }

// ErrNotAlone says that other passes have finished on the same database since these did.
var ErrNotAlone = errors.New("another enrich stage, or a rejudge, works on the same database, and only one may: stop all but one, " +
	"and start that one again so that it reads how far they came")

// newestProgress gives the version of the newest progress, in the shape of the questions of batch.
const newestProgress = "SELECT '" + progressMarker + "' AS raw, toInt32(0) AS partition, toInt64(0), toInt64(max(version)), toDateTime64(0, 3, 'UTC'), emptyArrayString()" +
	" FROM pass_progress WHERE pass = '" + Name + "' AND raw_table = '" + progressMarker + "'"

// Alone is ErrNotAlone when the newest progress in the table is not that of whoever asks: finished is the version of the last
// pass that they know to have finished, finishing of the last one whose progress they sent, stored or not.
func Alone(newest, finished, finishing uint64) error {
	if newest > finished && newest != finishing {
		return ErrNotAlone
	}
	return nil
}

func (p *Passes) alone(newest uint64) error {
	return Alone(newest, p.state.watermark, p.state.finishing)
}

// look counts the rows of the raw tables, at next to no cost: a count changes whenever something is loaded.
func (p *Passes) look(ctx context.Context) (map[string]uint64, error) {
	var counts [3]uint64
	err := p.conn.QueryRow(ctx, "SELECT (SELECT count() FROM "+rawTables[0]+"), (SELECT count() FROM "+rawTables[1]+"), (SELECT count() FROM "+rawTables[2]+")").
		Scan(&counts[0], &counts[1], &counts[2])
	if err != nil {
		return nil, fmt.Errorf("look for new records: %w", err)
	}
	seen := map[string]uint64{}
	for i, table := range rawTables {
		seen[table] = counts[i]
	}
	return seen, nil
}

// namedJobs is up to how many jobs of a partition are named to the statement that reads their records: cheaper than to have
// it find them.
const namedJobs = 1000

// batch reads which offsets are not judged yet of the tables whose count is not what it was when all was judged; whole
// says that it takes all there are. It is ErrNotAlone when somebody else has written progress.
func (p *Passes) batch(ctx context.Context, seen map[string]uint64) (b batch, whole bool, err error) {
	whole = true
	oldest := time.Time{}
	var questions []string
	for _, table := range rawTables {
		if before, known := p.state.seen[table]; known && before == seen[table] {
			continue
		}
		cond := "1"
		for key, next := range p.state.next {
			if key.table == table {
				cond += fmt.Sprintf(" AND NOT (kafka_partition = %d AND kafka_offset < %d)", key.partition, next)
			}
		}
		jobs := "emptyArrayString()"
		if table == rawPlacements {
			jobs = fmt.Sprintf("groupUniqArray(%d)(concat(cluster, '\\0', job_id))", namedJobs+1)
		}
		questions = append(questions, "SELECT '"+table+"' AS raw, kafka_partition AS partition, min(kafka_offset), max(kafka_offset) + 1, min(loaded_at), "+jobs+
			" FROM "+table+" WHERE "+cond+" GROUP BY partition")
	}
	if len(questions) == 0 {
		return nil, true, nil
	}
	rows, err := p.conn.Query(ctx, strings.Join(append(questions, newestProgress), " UNION ALL "))
	if err != nil {
		return nil, false, fmt.Errorf("find new records: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var r offsetRange
		var loaded time.Time
		var jobs []string
		if err := rows.Scan(&r.Table, &r.Partition, &r.From, &r.To, &loaded, &jobs); err != nil {
			return nil, false, fmt.Errorf("find new records: %w", err)
		}
		if r.Table == progressMarker {
			if err := p.alone(uint64(r.To)); err != nil {
				return nil, false, fmt.Errorf("find new records: %w", err)
			}
			continue
		}
		if len(jobs) <= namedJobs {
			for _, name := range jobs {
				cluster, job, _ := strings.Cut(name, "\x00")
				r.Jobs = append(r.Jobs, [2]string{cluster, job})
			}
		}
		if r.To-r.From > int64(p.cfg.BatchRows) {
			r.To, whole = r.From+int64(p.cfg.BatchRows), false
		}
		b = append(b, r)
		if oldest.IsZero() || loaded.Before(oldest) {
			oldest = loaded
		}
	}
	if err := rows.Err(); err != nil {
		return nil, false, fmt.Errorf("find new records: %w", err)
	}
	slices.SortFunc(b, func(x, y offsetRange) int {
		return cmp.Or(cmp.Compare(x.Table, y.Table), cmp.Compare(x.Partition, y.Partition))
	})
	p.m.oldest.Store(0)
	if !oldest.IsZero() {
		p.m.oldest.Store(oldest.UnixMilli())
	}
	return b, whole, nil
}

// otherUsual gives the placements of a cluster that were judged with another usual number of GPUs than now.
func (p *Passes) otherUsual(ctx context.Context, c *cluster) ([]placementKey, error) {
	usual := c.facts.usualGPUs
	if c.usualJudged == usual {
		return nil, nil
	}
	c.usualJudged = usual
	return p.keysOf(ctx, c.name, fmt.Sprintf(`SELECT job_id, attempt, seq FROM verdicts WHERE cluster = {cluster:String}
		AND (cause_detail['usual_node_gpus'] NOT IN ('', '%d') OR outcome_reason = 'no_capacity' OR domains_min IS NULL AND domains_used > 0)`, usual))
}
