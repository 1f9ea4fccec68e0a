/** Base of all errors of this module. */
export class CountmillError extends Error {
    /** @param {string} message @param {Partial<CountmillError>} [fields] */
    constructor(message: string, fields?: Partial<CountmillError>);
    status: number;
    retryAfter: number;
    /** The answer's members: type, detail, field, limit, index, line, ... @type {Record<string, any>} */
    problem: Record<string, any>;
    /** Of the call, for a repeat after OutcomeUnknownError: pass it to increment as key, to next as id. */
    key: string;
    /** Of add, which the client has given up; the class says if they counted. @type {Increment[]} */
    increments: Increment[];
    again: boolean;
    open: boolean;
    /** The increments that were not counted. @returns {Conflict[]} */
    get conflicts(): Conflict[];
}
/** Nothing was counted. Correct the request first. */
export class InvalidError extends CountmillError {
}
/** Nothing was counted. The key came with another body before. */
export class ConflictError extends CountmillError {
}
/** All were counted but those in conflicts. Do not repeat any. */
export class IDsReusedError extends CountmillError {
}
/** Nothing was counted. Repeat later. */
export class OverloadedError extends CountmillError {
}
/** Nothing was counted, or nothing can be read. Repeat later. */
export class UnavailableError extends CountmillError {
}
/** Maybe counted. Repeat only with the same id or key. */
export class OutcomeUnknownError extends CountmillError {
}
/** A total does not fit 64 bits. */
export class TotalOverflowError extends CountmillError {
}
/** Nothing was counted. The client is closed. */
export class ClosedError extends CountmillError {
}
/** Nothing was done. The token is missing, or may not do this. */
export class DeniedError extends CountmillError {
}
/** Nothing was done. There is no such thing, or the server's role does not serve it. */
export class NotFoundError extends CountmillError {
}
/** Increments of the receipt were not counted within wait. Ask again later. */
export class NotCountedYetError extends CountmillError {
}
/** The receipt is beyond the deduplication window, or of another database. */
export class ReceiptGoneError extends CountmillError {
}
/** Nothing was given. The time of the request is before the deduplication window. */
export class IDExpiredError extends CountmillError {
}
/** Increments of the receipt are in dead letters: problem has dead_letters and totals. */
export class DeadLetteredError extends CountmillError {
}
/** Talks to one countmill, or to several behind one address. */
export class Client {
    /** @param {string} base http://HOST:PORT or https://HOST:PORT, or a path below @param {Options} [options] */
    constructor(base: string, options?: Options);
    /**
     * Adds in memory and returns at once. Increments of one counter become one. The process does not
     * exit by itself before they are sent. If it is killed before, they are lost. OverloadedError and ClosedError mean certainly not counted.
     * @param {string} counter @param {number | bigint} [delta]
     */
    add(counter: string, delta?: number | bigint): void;
    /**
     * Counts one increment, which is durable when this resolves. After OutcomeUnknownError call it again with
     * the same id, or with the key of the error: any other call may count twice.
     * @param {string} counter @param {number | bigint} [delta] @param {CallOptions & {id?: string, key?: string, time?: Date}} [options]
     * @returns {Promise<Accepted>}
     */
    increment(counter: string, delta?: number | bigint, { id, key, time, timeout }?: CallOptions & {
        id?: string;
        key?: string;
        time?: Date;
    }): Promise<Accepted>;
    /**
     * The next values of a sequence: count of them, from first to last. No value is given twice. With an id a
     * repeat gets the same values; with the time of the first call too, a repeat after the deduplication window
     * throws IDExpiredError. Without an id each call gets new values; the key of an OutcomeUnknownError is then the
     * id for a repeat.
     * @param {string} sequence @param {CallOptions & {id?: string, count?: number, time?: Date}} [options]
     * @returns {Promise<{first: number, last: number}>}
     */
    next(sequence: string, { id, count, time, timeout }?: CallOptions & {
        id?: string;
        count?: number;
        time?: Date;
    }): Promise<{
        first: number;
        last: number;
    }>;
    /** The last value of a sequence. @param {string} sequence @param {CallOptions} [options] @returns {Promise<SequenceState>} */
    sequence(sequence: string, { timeout }?: CallOptions): Promise<SequenceState>;
    /**
     * Marks a sequence as deleted, and resolves to its state before. Its last value stays: none is given again. It is
     * repeated after an unknown outcome; the state is then that after the delete.
     * @param {string} sequence @param {CallOptions} [options] @returns {Promise<SequenceState>}
     */
    deleteSequence(sequence: string, { timeout }?: CallOptions): Promise<SequenceState>;
    /** The indexes, in the order of their names, with their progress. @param {CallOptions} [options] @returns {Promise<Index[]>} */
    indexes({ timeout }?: CallOptions): Promise<Index[]>;
    /**
     * Creates an index, and resolves to all. It may be repeated. The token needs the scope admin.
     * @param {string} name @param {string} match @param {string} group @param {CallOptions} [options] @returns {Promise<Index[]>}
     */
    createIndex(name: string, match: string, group: string, { timeout }?: CallOptions): Promise<Index[]>;
    /**
     * Begins to delete an index and its groups, and resolves to all. It may be repeated until the index is gone.
     * @param {string} name @param {CallOptions} [options] @returns {Promise<Index[]>}
     */
    deleteIndex(name: string, { timeout }?: CallOptions): Promise<Index[]>;
    /**
     * The n best counters of an index, 1 to 1,000, or with of "groups" its best groups.
     * @param {string} index @param {BoardOptions & {n?: number, of?: "counters" | "groups"}} [options] @returns {Promise<Top>}
     */
    top(index: string, { n, of, window, tz, timeout }?: BoardOptions & {
        n?: number;
        of?: "counters" | "groups";
    }): Promise<Top>;
    /** The place of a counter among those of an index. @param {string} index @param {string} counter @param {BoardOptions} [options] @returns {Promise<Rank>} */
    rank(index: string, counter: string, { window, tz, timeout }?: BoardOptions): Promise<Rank>;
    /**
     * Sends all that was added before. It is durable when this resolves. After an error without increments the
     * client keeps them, and goes on with the same key. After an error with increments it has given these up;
     * the error's class says whether they were counted. Those that the token may not count are given up alone,
     * and the error comes after the others are durable.
     * @param {CallOptions} [options]
     */
    flush({ timeout }?: CallOptions): Promise<void>;
    /**
     * Refuses further increments, sends the rest and ends watches. Its error has all that was not sent. It may
     * be repeated, to try again.
     * @param {CallOptions} [options]
     */
    close({ timeout }?: CallOptions): Promise<void>;
    /** One total. @param {string} counter @param {ReadOptions} [options] @returns {Promise<Total>} */
    total(counter: string, options?: ReadOptions): Promise<Total>;
    /**
     * Up to 1,000 totals, in the order asked. Those with source "store" are of one moment. If some do not fit 64 bits, the
     * problem of TotalOverflowError has these counters as overflowed, and the other totals.
     * @param {string[]} counters @param {ReadOptions} [options] @returns {Promise<Total[]>}
     */
    totals(counters: string[], { timeout, maxStaleness, minAsOf, after, wait }?: ReadOptions): Promise<Total[]>;
    /**
     * All counters whose names begin with prefix, in byte order, page by page. timeout is that of a page. If
     * counters have no total because it does not fit 64 bits, TotalOverflowError names them at the end.
     * @param {string} [prefix] @param {CallOptions} [options] @returns {AsyncGenerator<Total, void, void>}
     */
    list(prefix?: string, { timeout }?: CallOptions): AsyncGenerator<Total, void, void>;
    /**
     * Rows by counter, in the order asked, and by time: at most 10,000. All are as of one moment. Each counter needs a
     * rule (addSeries): NotFoundError names one without.
     * @param {string[]} counters @param {SeriesOptions} [options] @returns {Promise<Row[]>}
     */
    series(counters: string[], { step, tz, from, to, timeout }?: SeriesOptions): Promise<Row[]>;
    /** The rules for series. @param {CallOptions} [options] @returns {Promise<Rules>} */
    rules({ timeout }?: CallOptions): Promise<Rules>;
    /**
     * Makes the counters of a pattern keep a series, and resolves to all rules. keep is how long: 1m:6h,15m:400d keeps
     * minutes for 6 hours and quarter hours for 400 days. Increments from then on are in it: add the rule before the first
     * one. It may be repeated. The token needs the scope admin.
     * @param {string} pattern @param {string} keep @param {CallOptions} [options] @returns {Promise<Rules>}
     */
    addSeries(pattern: string, keep: string, { timeout }?: CallOptions): Promise<Rules>;
    /**
     * Ends the rule with the pattern. Its series stay for as long as it promised. It may be repeated.
     * @param {string} pattern @param {CallOptions} [options] @returns {Promise<Rules>}
     */
    removeSeries(pattern: string, { timeout }?: CallOptions): Promise<Rules>;
    /**
     * The increments of a counter under a rule for the journal, from the oldest on, page by page. after begins
     * after the key of an entry: pass the last key that you have seen to follow the end. id selects the increment
     * with that id. timeout is that of a page. The token needs the scope admin.
     * @param {string} counter @param {CallOptions & {id?: string, after?: string}} [options]
     * @returns {AsyncGenerator<JournalEntry, void, void>}
     */
    journal(counter: string, { id, after, timeout }?: CallOptions & {
        id?: string;
        after?: string;
    }): AsyncGenerator<JournalEntry, void, void>;
    /**
     * Up to limit entries, at most 1,000: the oldest, those just after a key, or those just before a key. before
     * "f".repeat(40) gives the newest. Pages of what existed at the first call never repeat and never skip an entry.
     * @param {string} counter @param {CallOptions & {id?: string, after?: string, before?: string, limit?: number}} [options]
     * @returns {Promise<JournalPage>}
     */
    journalPage(counter: string, { id, after, before, limit, timeout }?: CallOptions & {
        id?: string;
        after?: string;
        before?: string;
        limit?: number;
    }): Promise<JournalPage>;
    /**
     * The totals of up to 100 counters, and then those that change, until signal aborts or the client closes.
     * With prefix, and counters [], the counters whose names begin with it: the first 100, or limit (up to
     * 1,000) of them. Broken connections are made again, and go to onError. A caller that is 5 s behind gets a
     * new connection, and so the newest totals. An error that a repeat cannot help is thrown.
     * @param {string[]} counters @param {WatchOptions} [options]
     * @returns {AsyncGenerator<Update, void, void>}
     */
    watch(counters: string[], { signal, maxStaleness, prefix, limit, rates }?: WatchOptions): AsyncGenerator<Update, void, void>;
    #private;
}
/**
 * Every commit until asOf is in total. Of two totals the one with the greater asOf is newer. exists is
 * false for a counter that nobody has incremented. rate is the change a second, of a watch with rates.
 */
export type Total = {
    counter: string;
    total: bigint;
    asOf: string;
    source: string;
    shards: number;
    exists: boolean;
    rate: number | null;
};
/**
 * The sum of a counter's increments in one step of time, which begins at time. partial: it is not over, or not wholly
 * covered by the rule.
 */
export type Row = {
    time: string;
    counter: string;
    value: bigint;
    partial: boolean;
};
/**
 * The counters of pattern, a name or a prefix followed by *, keep a series from begin on. ended is null for a rule in force.
 */
export type SeriesRule = {
    pattern: string;
    keep: string;
    begin: string;
    ended: string | null;
};
/**
 * The rules in the order in which they are tried. version rises by 1 with each change of the settings.
 */
export type Rules = {
    version: number;
    series: SeriesRule[];
};
/**
 * step is the length of a row (15m, 1d, 1w, 1mo and others; 15m), and tz the zone of days and longer steps. from is
 * rounded down and to up to whole rows: the last 24 hours.
 */
export type SeriesOptions = CallOptions & {
    step?: string;
    tz?: string;
    from?: Date;
    to?: Date;
};
/**
 * The delta of one counter in one part: an increment, or several of one sender that were sent together. Keys
 * compare as strings in the order of entries. sender is the name of a token; empty if it is not known.
 */
export type JournalEntry = {
    key: string;
    time: string;
    counter: string;
    delta: bigint;
    part: string;
    sender: string;
};
/**
 * Some entries of one counter, in ascending order of keys. next is the after of the next page, empty at the end; a
 * page may be short although there is a next one. previous is the before of the page before this one, if before was
 * given; empty at the beginning. The journal is complete up to settledUntil; later entries are not shown yet.
 */
export type JournalPage = {
    entries: JournalEntry[];
    next: string;
    previous: string;
    settledUntil: string;
};
/**
 * last is the last value, 0 if there was none. exists is false if nobody has used it since its delete, or ever.
 */
export type SequenceState = {
    sequence: string;
    last: number;
    exists: boolean;
};
/**
 * Puts the counters of match into groups, counters whose names begin with =. Groups have totals while state is
 * serving, and not building or deleting. ranges are null if the token may not read all its counters. checkedAt: when it was last compared with the shards of its counters.
 */
export type Index = {
    name: string;
    match: string;
    group: string;
    state: string;
    ranges: number | null;
    rangesDone: number | null;
    checkedAt: string | null;
};
/**
 * All counters were looked at as of completeAsOf; all totals and places are of it. partial: the window began before the
 * rule for its series, or no rule keeps a series of the overflow group.
 */
export type Scan = {
    completeAsOf: string;
    partial: boolean;
};
/**
 * The best counters, the best first, with their totals or the sums of the window, and their places. Equal totals share
 * a place. overflowed have none, because their totals do not fit 64 bits.
 */
export type Top = Scan & {
    top: {
        counter: string;
        total: bigint;
        rank: number;
    }[];
    overflowed: string[];
};
/**
 * rank is null if the counter does not exist, or has 0 in the window. of: how many were ordered.
 */
export type Rank = Scan & {
    counter: string;
    total: bigint;
    rank: number | null;
    of: number;
};
/**
 * window orders by the increments of today, this-week or this-month in the time zone tz, or of the last 1h. It needs
 * a rule for series: NotFoundError says so.
 */
export type BoardOptions = CallOptions & {
    window?: string;
    tz?: string;
};
/**
 * The totals of a watch that have changed. whole: these are all totals, and any others are gone. So is the first
 * update, and the first one after a break. removed are counters that were deleted or are beyond the limit.
 * truncated: more counters have the prefix. lag: the age of the oldest uncommitted increment, in seconds.
 * overflowed: their totals do not fit 64 bits, and are missing.
 */
export type Update = {
    totals: Total[];
    whole: boolean;
    removed: string[];
    truncated: boolean;
    lag: number | null;
    overflowed: string[];
};
/**
 * Increments that are durable. Totals of the moment countedAsOf or a later one contain them. It is empty if not
 * known; receipt is empty if the server counts before it answers.
 */
export type Accepted = {
    receipt: string;
    countedAsOf: string;
};
export type WatchOptions = {
    signal?: AbortSignal;
    maxStaleness?: number;
    prefix?: string;
    limit?: number;
    rates?: boolean;
};
export type Conflict = {
    position: number;
    id: string;
};
export type Increment = {
    counter: string;
    delta: number;
};
export type Options = {
    /**
     * a new token must have the old one's name
     */
    token?: string | (() => string | Promise<string>) | undefined;
    /**
     * of one call, repeats included; 30,000
     */
    timeout?: number | undefined;
    /**
     * how long an added increment waits at most; 250
     */
    flushInterval?: number | undefined;
    /**
     * held in memory, with those on their way; 7,500, and not more
     */
    maxCounters?: number | undefined;
    /**
     * the server's --dedup-window; no repeats near its end; 8 days
     */
    dedupWindow?: number | undefined;
    /**
     * of the background; logs
     */
    onError?: ((e: Error) => void) | undefined;
    /**
     * lets a token go over plain HTTP to another machine
     */
    insecure?: boolean | undefined;
};
export type CallOptions = {
    timeout?: number;
};
/**
 * maxStaleness accepts an older, cheaper total; 0 reads the store. minAsOf accepts none of a moment before: pass the
 * asOf of an earlier total, and a counter never goes back. after, an Accepted or a receipt, accepts none without
 * these increments; the server waits for them for up to wait: 2,000, and 5,000 at most.
 */
export type ReadOptions = {
    timeout?: number;
    maxStaleness?: number;
    minAsOf?: string;
    after?: Accepted | string;
    wait?: number;
};
/**
 * id: in the body, for repeats. method: default POST with a body, else GET. read: it changes nothing. exact: totals come as strings.
 * maybe: when the first try was sent that was maybe counted, or 0
 */
export type Request = {
    path: string;
    body?: string;
    type?: string;
    key?: string;
    id?: string;
    method?: string;
    read?: boolean;
    exact?: boolean;
    maybe: number;
};
export type Batch = Request & {
    increments: Increment[];
};
