// Values of every type, by name, and a text that says what a value is: the same as in capnweb/testserver/target.

const sixteen = [0, 1, 2, 3, 4, 5, 6, 7, 248, 249, 250, 251, 252, 253, 62, 63];
const hex = (bytes) => Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('hex');
const text = (s) => 'text:' + Buffer.from(s).toString('hex');
const escapes = '"\\/\b\f\n\r\t\u0000\u001f\u007f<>&\u2028\u2029é漢😀';
const containers = {
  ArrayBuffer, DataView, Int8Array, Uint8ClampedArray, Int16Array, Uint16Array, Int32Array, Uint32Array,
  BigInt64Array, BigUint64Array, Float32Array, Float64Array,
};

// unaligned gives bytes that begin one byte into their buffer, with another one after them.
function unaligned(bytes) {
  const all = new Uint8Array(bytes.length + 2);
  all.set(bytes, 1);
  return all.subarray(1, bytes.length + 1);
}

function deep(value, levels) {
  for (let i = 0; i < levels; i++) value = [value];
  return value;
}

function withProps(error, props) { return Object.assign(error, props); }

// values are [name, first version, make, what describe says].
export const values = [
  ['undefined', '0.4.0', () => undefined, 'undefined'],
  ['null', '0.4.0', () => null, 'null'],
  ['true', '0.4.0', () => true, 'true'],
  ['zero', '0.4.0', () => 0, '0'],
  ['negative', '0.4.0', () => -1.5, '-1.5'],
  ['largest exact integer', '0.4.0', () => 9007199254740991, '9007199254740991'],
  ['inf', '0.4.0', () => Infinity, 'Infinity'],
  ['-inf', '0.4.0', () => -Infinity, '-Infinity'],
  ['nan', '0.4.0', () => NaN, 'NaN'],
  ['empty string', '0.4.0', () => '', 'text:'],
  ['string', '0.4.0', () => 'héllo', text('héllo')],
  ['escapes', '0.4.0', () => escapes, text(escapes)],
  ['bigint', '0.4.0', () => 123456789n, 'bigint:123456789'],
  ['negative bigint', '0.4.0', () => -5n, 'bigint:-5'],
  ['big bigint', '0.4.0', () => 1n << 200n, 'bigint:1606938044258990275541962092341162602522202993782792835301376'],
  ['date', '0.4.0', () => new Date(1749342170815), 'date:1749342170815'],
  ['date before 1970', '0.4.0', () => new Date(-1), 'date:-1'],
  ['invalid date', '0.8.0', () => new Date(NaN), 'date:invalid'],
  ['bytes', '0.4.0', () => Uint8Array.from(sixteen), 'Uint8Array:' + hex(Uint8Array.from(sixteen))],
  ['bytes, unaligned', '0.4.0', () => unaligned(sixteen), 'Uint8Array:' + hex(Uint8Array.from(sixteen)), 'bytes'],
  ['bytes, a Buffer', '0.11.0', () => Buffer.from(sixteen), 'Uint8Array:' + hex(Uint8Array.from(sixteen)), 'bytes'],
  ['no bytes', '0.4.0', () => new Uint8Array(0), 'Uint8Array:'],
  ['one byte', '0.4.0', () => Uint8Array.of(255), 'Uint8Array:ff'],
  ['two bytes', '0.4.0', () => Uint8Array.of(255, 254), 'Uint8Array:fffe'],
  ['error', '0.4.0', () => new RangeError('out of it'), 'error:RangeError:out of it{}'],
  ['error with properties', '0.8.0', () => withProps(new TypeError('m'), { code: 7, list: [1, 'a'] }),
    'error:TypeError:m{code: 7, list: [1, text:61]}'],
  ['error with a cause', '0.8.0', () => new Error('m', { cause: new RangeError('inner') }),
    'error:Error:m{cause: error:RangeError:inner{}}'],
  ['url', '0.11.0', () => new URL('https://example.com/path?q=1#f'), 'url:https://example.com/path?q=1#f'],
  ['headers', '0.5.0', () => new Headers([['x-custom', 'hello'], ['a', '1']]), 'headers:a=1;x-custom=hello'],
  ['no headers', '0.5.0', () => new Headers(), 'headers:'],
  ['empty array', '0.4.0', () => [], '[]'],
  ['array', '0.4.0', () => [1, 'a', null], '[1, text:61, null]'],
  ['nested arrays', '0.4.0', () => [[], [[1], 2]], '[[], [[1], 2]]'],
  ['array like an expression', '0.4.0', () => ['export', -1], '[text:6578706f7274, -1]'],
  ['empty object', '0.4.0', () => ({}), '{}'],
  ['object', '0.4.0', () => ({ b: [true], a: { c: new Date(5) } }), '{a: {c: date:5}, b: [true]}'],
  ['object with undefined', '0.4.0', () => ({ u: undefined }), '{u: undefined}'],
  ['odd keys', '0.4.0', () => ({ '': 1, 0: 2, then: 3, 'a b': 4 }), '{0: 2, : 1, a b: 4, then: 3}'],
  ['deep', '0.4.0', () => deep('bottom', 60), '['.repeat(60) + text('bottom') + ']'.repeat(60)],
  ['long text', '0.4.0', () => 'é'.repeat(100_000), 'text:' + 'c3a9'.repeat(100_000)],
  ['many bytes', '0.8.0', () => new Uint8Array(200_000), 'Uint8Array:' + '00'.repeat(200_000)],
  ['blob', '0.8.0', () => new Blob(['hello'], { type: 'text/plain' }), 'blob:text/plain:68656c6c6f'],
  ['empty blob', '0.8.0', () => new Blob([]), 'blob::'],
  ['large blob', '0.8.0', () => new Blob([new Uint8Array(1_000_000)], { type: 'a/b' }), 'blob:a/b:' + '00'.repeat(1_000_000)],
];

for (const [name, Type] of Object.entries(containers)) {
  const says = name + ':' + hex(Uint8Array.from(sixteen));
  const buffer = () => Uint8Array.from(sixteen).buffer;
  values.push([name, '0.11.0', () => name === 'ArrayBuffer' ? buffer() : new Type(buffer()), says]);
  const size = Type.BYTES_PER_ELEMENT ?? 1;
  if (name === 'DataView') values.push([name + ', unaligned', '0.11.0', () => {
    const bytes = unaligned(sixteen);
    return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }, says, name]);
  else if (name !== 'ArrayBuffer') values.push([name + ', with an offset', '0.11.0', () => {
    const all = new Uint8Array(16 + 2 * size);
    all.set(sixteen, size);
    return new Type(all.buffer, size, 16 / size);
  }, says, name]);
}

// make gives a value by its name.
export function make(name) {
  const found = values.find((v) => v[0] === name);
  if (!found) throw new TypeError(`no value has the name ${name}`);
  return found[2]();
}

const object = (o) => '{' + Object.entries(o).map(([k, v]) => k + ': ' + describe(v)).sort().join(', ') + '}';

// describe says what a value is. A blob has to be read first (describeBlob).
export function describe(v) {
  if (v === null) return 'null';
  switch (typeof v) {
    case 'undefined': case 'boolean': case 'number': return String(v);
    case 'string': return text(v);
    case 'bigint': return 'bigint:' + v;
    case 'function': return 'stub';
  }
  if (v instanceof Date) return 'date:' + (isNaN(v) ? 'invalid' : v.getTime());
  if (v instanceof ArrayBuffer) return 'ArrayBuffer:' + hex(new Uint8Array(v));
  if (ArrayBuffer.isView(v)) return (Buffer.isBuffer(v) ? 'Uint8Array' : v.constructor.name) + ':' + hex(v);
  if (v instanceof Error) {
    const props = { ...v };
    if ('cause' in v) props.cause = v.cause;
    return `error:${v.name}:${v.message}` + object(props);
  }
  if (v instanceof URL) return 'url:' + v.href;
  if (v instanceof Headers) return 'headers:' + pairs(v);
  if (v instanceof Blob) return 'blob';
  if (v instanceof ReadableStream) return 'readable';
  if (v instanceof WritableStream) return 'writable';
  if (v instanceof Request) return 'request';
  if (v instanceof Response) return 'response';
  if (Array.isArray(v)) return '[' + v.map(describe).join(', ') + ']';
  return object(v);
}

const pairs = (headers) => [...headers].map(([k, v]) => k + '=' + v).join(';');

// describeAll is describe for blobs too.
export async function describeAll(v) {
  if (v instanceof Blob) return 'blob:' + v.type + ':' + hex(new Uint8Array(await v.arrayBuffer()));
  return describe(v);
}

// describeBody says what a request or response is, and what is in its body.
export async function describeBody(v) {
  let head;
  if (v instanceof Request) head = `${v.method} ${v.url} ${pairs(v.headers)}`;
  else if (v instanceof Response) head = `${v.status} ${v.statusText} ${pairs(v.headers)}`;
  else throw new TypeError('neither a request nor a response but ' + describe(v));
  return head + ' ' + (v.body ? await v.text() : '(none)');
}
