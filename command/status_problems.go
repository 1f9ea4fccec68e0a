package command

import (
	"fmt"
	"strings"
	"time"

	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/command/cli"
)

// The limits beyond which status reports a problem: those of deploy/prometheus/alerts.yaml.
const (
	longLag          = 30 * time.Second
	longSkew         = time.Minute
	recentDeadLetter = 10 * time.Minute
	recentRestore    = 24 * time.Hour
	missedBackups    = 3
)

// problems are the ones that an overview shows, the worst first.
func (p *pipeline) problems() []backend.Finding {
	found := []backend.Finding{} // an array in JSON, if empty too
	for _, look := range []func() (backend.Finding, bool){p.notReady, p.unread, p.noAggregator, p.someLate, p.someStalled, p.clockOff, p.behind, p.letters, p.crowded, p.diskLow, p.restored, p.backupOld, p.indexLate} {
		if f, bad := look(); bad {
			found = append(found, f)
		}
	}
	return found
}

// reasonPages are those of reasons for which /readyz is not plainly ready, by words in them.
var reasonPages = []struct{ words, page string }{
	{"tokens:", "runbook.md#countmilltokensfilebroken"},
	{"increments are refused", "runbook.md#countmilldiskrefuses"},
	{"cache is unavailable", "runbook.md#countmillcacheerrors"},
	{"dead letters are not written", "runbook.md#countmilldeadletterswaiting"},
}

func (p *pipeline) notReady() (backend.Finding, bool) {
	f := backend.Finding{
		Check: "readiness", What: "This process is " + p.Status + ".", Why: "It does not do all of its work.",
		Do: "`countmill ready` has the reason, and the page has the remedy of each.", Page: "reference/readiness.md",
	}
	if p.Reason != "" {
		f.What, f.Do = fmt.Sprintf("This process is %s: %s.", p.Status, p.Reason), "The page has the remedy."
	}
	for _, known := range reasonPages {
		if strings.Contains(p.Reason, known.words) {
			f.Page = known.page
			break
		}
	}
	return f, p.Status != "ready"
}

func (p *pipeline) noAggregator() (backend.Finding, bool) {
	return backend.Finding{
		Check: "aggregators", What: "No aggregator takes messages: accepted increments wait on the bus.", Why: "Totals do not move.",
		Do:   "Start an aggregator, or ask one for its reason: countmill ready --server ITS-ADDRESS.",
		Page: "runbook.md#countmillnoaggregatoralive",
	}, p.Aggregators == 0 && !p.HeartbeatsUnread && len(p.Late) == 0
}

// unread is of the store, and not of aggregators, which may all work.
func (p *pipeline) unread() (backend.Finding, bool) {
	return backend.Finding{
		Check: "heartbeats", What: "The heartbeats of the aggregators cannot be read: the store is slow or does not answer.", Why: "Whether aggregators work is not known, and totals may be late.",
		Do:   "Look at the store; then ask an aggregator: countmill ready --server ITS-ADDRESS.",
		Page: "runbook.md#countmillnoaggregatoralive",
	}, p.HeartbeatsUnread
}

func (p *pipeline) someLate() (backend.Finding, bool) {
	late := make([]string, len(p.Late))
	for i, id := range p.Late {
		late[i] = cli.Plain(id)
	}
	f := backend.Finding{
		Check: "aggregators", What: "The heartbeats of these aggregators are late: " + strings.Join(late, ", ") + ".",
		Why:  "They have died, or the store is too slow for their heartbeats.",
		Do:   "One that was killed leaves this list after ten minutes. Ask the others: countmill ready --server ITS-ADDRESS. If they answer, look at the store.",
		Page: "runbook.md#countmillnoaggregatoralive",
	}
	if p.Aggregators == 0 {
		f.Why += " No other aggregator has a heartbeat: if they have died, totals do not move."
	}
	return f, len(late) > 0
}

func (p *pipeline) someStalled() (backend.Finding, bool) {
	stalled := p.stalled()
	return backend.Finding{
		Check: "aggregators", What: "These aggregators are alive and take no messages: " + strings.Join(stalled, ", ") + ".",
		Why:  "The others have to do their work, and the messages that they hold wait.",
		Do:   "Ask each for its reason: countmill ready --server ITS-ADDRESS.",
		Page: "runbook.md#countmillnoaggregatoralive",
	}, p.Aggregators > 0 && len(stalled) > 0
}

func (p *pipeline) clockOff() (backend.Finding, bool) {
	var off []string
	for _, m := range p.Fleet {
		if m.ClockSkew > longSkew.Seconds() {
			off = append(off, fmt.Sprintf("%s by %s", cli.Plain(m.ID), seconds(&m.ClockSkew)))
		}
	}
	return backend.Finding{
		Check: "clock", What: "Clocks of aggregators differ from the store's: " + strings.Join(off, ", ") + ".",
		Why:  "Totals are right. The lag and the minutes of series are not.",
		Do:   "Set the clocks of their machines, and run NTP.",
		Page: "runbook.md#countmillclockoff",
	}, len(off) > 0
}

func (p *pipeline) behind() (backend.Finding, bool) {
	return backend.Finding{
		Check: "lag", What: fmt.Sprintf("The lag is %s: totals are behind by that much.", seconds(p.Lag)),
		Why:  "Aggregators get more than they fold, or the store is slow or refuses.",
		Do:   "If commits/s do not rise, look at the store; otherwise run one aggregator more.",
		Page: "runbook.md#countmilllaghigh",
	}, p.Lag != nil && *p.Lag > longLag.Seconds()
}

func (p *pipeline) letters() (backend.Finding, bool) {
	return backend.Finding{
		Check: "dead letters", What: "A dead letter was written " + p.ago("", p.LastDeadLetter) + ".",
		Why:  "Its increments are in no total until a person decides.",
		Do:   "Read the reasons: countmill dead list --limit 20.",
		Page: "runbook.md#countmilldeadletters",
	}, !p.LastDeadLetter.IsZero() && p.AsOf.Sub(p.LastDeadLetter) < recentDeadLetter
}

func (p *pipeline) crowded() (backend.Finding, bool) {
	return backend.Finding{
		Check: "shards", What: "These counters need more than the 128 shards that a counter gets by itself: " + strings.Join(p.AtLimit, ", ") + ".",
		Why:  "Commits to them wait for one another, and are repeated.",
		Do:   "Give them more: countmill grow NAME SHARDS.",
		Page: "runbook.md#countmillcommitscontended",
	}, len(p.AtLimit) > 0
}

func (p *pipeline) diskLow() (backend.Finding, bool) {
	d := p.Disk
	if d == nil || d.MinFree == 0 || d.Free >= 2*d.MinFree || strings.Contains(p.Reason, "increments are refused") {
		return backend.Finding{}, false
	}
	return backend.Finding{
		Check: "disk", What: fmt.Sprintf("%s are free on the disk of the store.", bytesText(d.Free)),
		Why:  fmt.Sprintf("Below %s increments are refused with 507.", bytesText(d.MinFree)),
		Do:   "Make room: old backups and files of other programs first, or enlarge the disk.",
		Page: "runbook.md#countmilldisklow",
	}, true
}

func (p *pipeline) restored() (backend.Finding, bool) {
	return backend.Finding{
		Check: "failover", What: "The database came to another server, or was restored, " + p.ago("", p.Restored) + ".",
		Why:  "If it lacks its end, increments that were acknowledged shortly before are lost. Sequences have left out values.",
		Do:   "Send increments again that have ids, within the deduplication window. After a failover to a synchronous standby nothing is lost.",
		Page: "howto/postgresql.md#failover",
	}, !p.Restored.IsZero() && p.AsOf.Sub(p.Restored) < recentRestore
}

func (p *pipeline) backupOld() (backend.Finding, bool) {
	every := time.Duration(p.BackupEvery * float64(time.Second))
	f := backend.Finding{
		Check: "backups", What: fmt.Sprintf("The last backup was taken %s, and one is due every %s.", p.ago("", p.LastBackup), every),
		Why:  "If the disk is lost now, so is everything accepted since then.",
		Do:   "Read the reason in the log, or try one: countmill backup.",
		Page: "runbook.md#countmillbackuptooold",
	}
	if p.LastBackup.IsZero() {
		f.What = fmt.Sprintf("No backup was taken yet, and one is due every %s.", every)
	}
	return f, every > 0 && p.AsOf.Sub(p.LastBackup) > missedBackups*every
}
