package datastore

import (
	"strconv"
	"sync"
	"testing"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"
)

// BenchmarkEntities writes new entities as fast as the emulator accepts them: 400 a commit, 4 commits
// at once, without a pipeline. Folding distinct counters cannot be faster. One iteration is an entity.
func BenchmarkEntities(b *testing.B) {
	for _, c := range []struct {
		name     string
		mutation func(s *Store, r ref) *pb.Mutation
	}{
		{"plain", func(s *Store, r ref) *pb.Mutation {
			return &pb.Mutation{Operation: &pb.Mutation_Upsert{Upsert: &pb.Entity{
				Key: s.key(r), Properties: map[string]*pb.Value{"counter": indexedText("c"), "count": integer(1)},
			}}}
		}},
		{"one increment", func(s *Store, r ref) *pb.Mutation {
			m := s.increment(r, "c", 1, 0, 1)
			m.PropertyTransforms = m.PropertyTransforms[:1]
			return m
		}},
		{"a fold's", func(s *Store, r ref) *pb.Mutation { return s.increment(r, "c", 1, 0, 1) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := openStore(b, fresh(b))
			var at sync.Mutex
			next := 0
			take := func() (from, to int) {
				at.Lock()
				defer at.Unlock()
				from, next = next, min(next+maxEntities, b.N)
				return from, next
			}
			b.ResetTimer()
			var group sync.WaitGroup
			for range s.Limits().Commits {
				group.Go(func() {
					for from, to := take(); from < to; from, to = take() {
						mutations := make([]*pb.Mutation, 0, to-from)
						for i := from; i < to; i++ {
							mutations = append(mutations, c.mutation(s, ref{kindProbe, strconv.Itoa(i)}))
						}
						if _, err := s.commitOnce(b.Context(), mutations); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			group.Wait()
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "entities/s")
		})
	}
}
