package rows

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5/pgconn"
)

// The types of parameters, by their numbers in every PostgreSQL.
const (
	oidBytea, oidInt8, oidText          = 17, 20, 25
	oidBytes, oidInt8s, oidTexts uint32 = 1001, 1016, 1009
)

// elements are the types of the elements of arrays.
var elements = map[uint32]uint32{oidBytes: oidBytea, oidInt8s: oidInt8, oidTexts: oidText}

// A param is a parameter of a statement in its binary form.
type param struct {
	oid   uint32
	value []byte
}

func number(n int64) param { return param{oidInt8, binary.BigEndian.AppendUint64(nil, uint64(n))} }

func text(s string) param { return param{oidText, []byte(s)} }

// An array is a parameter that is encoded element by element.
type array struct {
	oid   uint32
	n     int
	nulls bool
	buf   []byte
}

func newArray(oid uint32) *array { return &array{oid: oid, buf: make([]byte, 20, 512)} }

func (a *array) int64(n int64) {
	a.n++
	a.buf = binary.BigEndian.AppendUint32(a.buf, 8)
	a.buf = binary.BigEndian.AppendUint64(a.buf, uint64(n))
}

func (a *array) string(s string) {
	a.n++
	a.buf = binary.BigEndian.AppendUint32(a.buf, uint32(len(s)))
	a.buf = append(a.buf, s...)
}

func (a *array) null() {
	a.n, a.nulls = a.n+1, true
	a.buf = binary.BigEndian.AppendUint32(a.buf, 1<<32-1)
}

// fill appends elements up to n: zeros, or nulls.
func (a *array) fill(n int) {
	for a.n < n {
		if a.oid == oidInt8s {
			a.int64(0)
		} else {
			a.null()
		}
	}
}

func (a *array) param() param {
	head := a.buf[:20]
	binary.BigEndian.PutUint32(head, 1)
	clear(head[4:8])
	if a.nulls {
		head[7] = 1
	}
	binary.BigEndian.PutUint32(head[8:], elements[a.oid])
	binary.BigEndian.PutUint32(head[12:], uint32(a.n))
	binary.BigEndian.PutUint32(head[16:], 1)
	return param{a.oid, a.buf}
}

func params(arrays []*array, more ...param) (all []param) {
	for _, a := range arrays {
		all = append(all, a.param())
	}
	return append(all, more...)
}

// A batch is the statements of one round trip.
type batch struct {
	pgconn.Batch
	statements []statement
}

type statement struct {
	// meant is the error that a division by zero, or a duplicate key, means here.
	meant error
	// row gets each row of the answer.
	row func(values [][]byte) error
}

var binaryFormat = []int16{1}

func (b *batch) do(sql string, args ...param) { b.want(nil, nil, sql, args...) }

func (b *batch) want(meant error, row func(values [][]byte) error, sql string, args ...param) {
	values, oids := make([][]byte, len(args)), make([]uint32, len(args))
	for i, a := range args {
		values[i], oids[i] = a.value, a.oid
	}
	b.statements = append(b.statements, statement{meant, row})
	b.ExecParams(sql, values, oids, binaryFormat, binaryFormat)
}

// run sends all statements, and reads all answers. done is the number of statements that have succeeded.
func (b *batch) run(ctx context.Context, conn *pgconn.PgConn) (done int, err error) {
	if err := ctx.Err(); err != nil || conn.IsClosed() {
		return 0, notSent(cmp.Or(err, errClosed))
	}
	answers := conn.ExecBatch(ctx, &b.Batch)
	var rowErr error
	for answers.NextResult() {
		answer := answers.ResultReader()
		for answer.NextRow() {
			if row := b.statements[done].row; row != nil && rowErr == nil {
				rowErr = row(answer.Values())
			}
		}
		if _, err := answer.Close(); err != nil {
			break
		}
		done++
	}
	// The error of a connection that is lost from here on answers pgconn.SafeToRetry with true, although all was sent.
	err = cmp.Or(answers.Close(), rowErr)
	if err == nil && done < len(b.statements) {
		err = fmt.Errorf("postgres: %d of %d statements were answered", done, len(b.statements))
	}
	return done, err
}

func int64Of(value []byte) (n int64) {
	switch len(value) {
	case 8:
		n = int64(binary.BigEndian.Uint64(value))
	case 4:
		n = int64(binary.BigEndian.Uint32(value))
	}
	return n
}

// microseconds of 2000-01-01, from which PostgreSQL counts.
const epoch = 946684800_000_000

func arg(n int) string { return "$" + strconv.Itoa(n) }
