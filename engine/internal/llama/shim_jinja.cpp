// Chat templates through llama.cpp's own Jinja engine (common/jinja). Its interface allows to wrap nodes of the parsed
// template and to give values of our own, and so what differs from Python's Jinja is put right:
//
//   - What a template prints with tojson, join or string loses its mark in the engine, though it holds input; so do all
//     but one of the pieces of a split. Such expressions are marked again.
//   - Keys of objects are marked as input too: a model chooses the names of its arguments.
//   - Numbers print as in Python (0.1 and 1e-05, not 0.100000), and so do printed lists and objects.
//   - Text + something that is no text is an error, as in Python, and not the something's text.
//
// Templates come from model files, so they are hostile until proven otherwise: parsing and rendering recurse, and run
// on a thread with a large stack; range() and macros are bounded.
#include "shim.h"

#include "jinja/lexer.h"
#include "jinja/parser.h"
#include "jinja/runtime.h"
#include "jinja/value.h"
#include "json.h"

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <pthread.h>
#include <string>

using namespace jinja;

struct qn_template {
	std::string source;
	program prog;
};

namespace {

char *dup(const std::string &s) {
	char *out = static_cast<char *>(malloc(s.size() + 1));
	if (out) memcpy(out, s.data(), s.size()), out[s.size()] = 0;
	return out;
}

// python_float is repr() of a Python float: the shortest digits that read back as the same number.
std::string python_float(double v) {
	if (std::isnan(v)) return "NaN";
	if (std::isinf(v)) return v < 0 ? "-Infinity" : "Infinity";
	char buf[32];
	auto end = std::to_chars(buf, buf + sizeof buf, v, std::chars_format::scientific).ptr;
	const std::string sci(buf, end);
	const int exponent = atoi(sci.c_str() + sci.find('e') + 1);
	if (v != 0 && (exponent < -4 || exponent >= 16)) return sci; // "1e-05": C++ and Python agree on the form
	char fixed[64];
	end = std::to_chars(fixed, fixed + sizeof fixed, v, std::chars_format::fixed).ptr;
	std::string out(fixed, end);
	return out.find('.') == std::string::npos ? out + ".0" : out;
}

// input_number is a number of the input that the engine would print in another way than Python.
struct input_number : value_float_t {
	std::string text;
	input_number(double v, std::string text) : value_float_t(v), text(std::move(text)) {}
	string as_string() const override { return text; }
};

value number(const common_json &j) {
	if (j.is_number_float()) return std::make_shared<input_number>(j.get<double>(), python_float(j.get<double>()));
	const int64_t n = j.get<int64_t>();
	const std::string text = j.dump();
	if (text == std::to_string(n)) return mk_val<value_int>(n);
	return std::make_shared<input_number>(j.get<double>(), text); // beyond 63 bits
}

// from_json is the engine's own conversion, with marked keys and Python's numbers.
value from_json(const common_json &j, bool input) {
	if (j.is_null()) return mk_val<value_none>();
	if (j.is_boolean()) return mk_val<value_bool>(j.get<bool>());
	if (j.is_number()) return number(j);
	if (j.is_string()) return mk_val<value_string>(string(j.get<std::string>(), input));
	if (j.is_array()) {
		auto arr = mk_val<value_array>();
		for (const auto &item : j) arr->push_back(from_json(item, input));
		return arr;
	}
	auto obj = mk_val<value_object>();
	for (auto it = j.begin(); it != j.end(); ++it) {
		value key = mk_val<value_string>(string(it.key(), input));
		obj->insert(key, from_json(it.value(), input));
	}
	return obj;
}

void set_all(context &ctx, const char *json, size_t len, bool input) {
	const auto obj = common_json::parse(std::string(json, len));
	for (auto it = obj.begin(); it != obj.end(); ++it) ctx.set_val(it.key(), from_json(it.value(), input));
}

bool holds_input(const value &v) {
	for (const auto &part : v->val_str.parts) {
		if (part.is_input) return true;
	}
	for (const auto &item : v->val_arr) {
		if (holds_input(item)) return true;
	}
	for (const auto &[key, item] : v->val_obj) {
		if (holds_input(key) || holds_input(item)) return true;
	}
	return false;
}

// Floats inside tojson: the engine prints six digits, and its writer cannot be replaced. So it is given a copy in which
// each float is an integer that no template holds, and that integer is then replaced in the text.
const int64_t float_mark = 7'300'000'000'000'000'000;

std::string float_text(const value &v) {
	auto *n = dynamic_cast<const input_number *>(v.get());
	return n ? n->text : python_float(v->as_float());
}

value floats_marked(const value &v, std::vector<std::string> &texts) {
	if (is_val<value_float>(v)) {
		texts.push_back(float_text(v));
		return mk_val<value_int>(float_mark + int64_t(texts.size()) - 1);
	}
	if (is_val<value_array>(v)) {
		auto arr = mk_val<value_array>();
		for (const auto &item : v->val_arr) arr->push_back(floats_marked(item, texts));
		return arr;
	}
	if (is_val<value_object>(v)) {
		auto obj = mk_val<value_object>();
		for (const auto &[key, item] : v->val_obj) obj->insert(key, floats_marked(item, texts));
		return obj;
	}
	return v;
}

void floats_written(std::string &text, const std::vector<std::string> &texts) {
	for (size_t i = texts.size(); i-- > 0;) {
		const std::string mark = std::to_string(float_mark + int64_t(i));
		for (size_t at; (at = text.find(mark)) != std::string::npos;) text.replace(at, mark.size(), texts[i]);
	}
}

// operand_slot hands an operand that was evaluated already to a filter expression.
struct operand_slot : expression {
	static thread_local value held;
	value execute_impl(context &) const override { return held; }
};
thread_local value operand_slot::held;

// marking_filter evaluates `operand | filter` and marks the resulting string where the operand holds input.
struct marking_filter : expression {
	statement_ptr operand;
	filter_expression inner; // operand_slot | filter
	bool json;

	marking_filter(statement_ptr &&operand, statement_ptr &&filter, bool json)
		: operand(std::move(operand)), inner(std::make_unique<operand_slot>(), std::move(filter)), json(json) {
		inner.pos = inner.operand->pos = 0;
	}

	value execute_impl(context &ctx) const override {
		const value v = operand->execute(ctx);
		if (is_val<value_float>(v)) return mk_val<value_string>(string(float_text(v)));
		std::vector<std::string> floats;
		operand_slot::held = json ? floats_marked(v, floats) : v;
		value result = inner.execute_impl(ctx);
		operand_slot::held = nullptr;
		if (is_val<value_string>(v) && !json) return result; // the engine keeps the parts of a string
		std::string text = result->as_string().str();
		floats_written(text, floats);
		return mk_val<value_string>(string(text, json || holds_input(v)));
	}
};

// marking_call marks all pieces that `x.split()` gives, where the engine marked one.
struct marking_call : expression {
	statement_ptr inner;
	explicit marking_call(statement_ptr &&call) : inner(std::move(call)) {}
	value execute_impl(context &ctx) const override {
		value result = inner->execute(ctx);
		if (is_val<value_array>(result) && holds_input(result)) {
			for (auto &piece : result->val_arr) piece->val_str.mark_input();
		}
		return result;
	}
};

// printing evaluates what stands between {{ and }}. The engine prints the items of a list behind one another, and
// nothing for an object.
struct printing : statement {
	statement_ptr inner;
	explicit printing(statement_ptr &&expr) : inner(std::move(expr)) {}
	value execute_impl(context &ctx) const override {
		const value v = inner->execute(ctx);
		if (!is_val<value_array>(v) && !is_val<value_object>(v)) return v;
		return mk_val<value_string>(string(v->as_string().str(), holds_input(v)));
	}
};

// left_of_plus and right_of_plus stand around the operands of a +, and compare their types.
thread_local std::vector<value> pluses; // left operands whose right one is being evaluated

struct left_of_plus : expression {
	statement_ptr inner;
	explicit left_of_plus(statement_ptr &&expr) : inner(std::move(expr)) {}
	value execute_impl(context &ctx) const override {
		pluses.push_back(inner->execute(ctx));
		return pluses.back();
	}
};

std::string python_type(const value &v) {
	if (is_val<value_array>(v)) return "list";
	if (is_val<value_object>(v)) return "dict";
	if (is_val<value_int>(v)) return "int";
	if (is_val<value_float>(v)) return "float";
	if (is_val<value_bool>(v)) return "bool";
	return v->is_none() ? "NoneType" : v->type();
}

struct right_of_plus : expression {
	statement_ptr inner;
	explicit right_of_plus(statement_ptr &&expr) : inner(std::move(expr)) {}
	value execute_impl(context &ctx) const override {
		const value right = inner->execute(ctx);
		const value left = pluses.back();
		pluses.pop_back();
		for (const auto &v : {left, right}) {
			if (v->is_undefined()) throw std::runtime_error("an operand of + is undefined: " + v->type());
		}
		if (is_val<value_string>(left) && !is_val<value_string>(right)) {
			throw std::runtime_error("can only concatenate str (not \"" + python_type(right) + "\") to str");
		}
		if (is_val<value_string>(right) && !is_val<value_string>(left)) {
			throw std::runtime_error("unsupported operand type(s) for +: '" + python_type(left) + "' and 'str'");
		}
		return right;
	}
};

// bounded_body is the body of a macro, which may call itself, but not for ever.
struct bounded_body : statement {
	statements body;
	explicit bounded_body(statements &&body) : body(std::move(body)) {}
	value execute_impl(context &ctx) const override {
		static thread_local int depth = 0;
		struct level {
			level() { depth++; }
			~level() { depth--; }
		} here;
		if (depth > 200) throw std::runtime_error("macros call one another more than 200 deep");
		auto out = mk_val<value_array>();
		for (const auto &s : body) out->push_back(s->execute(ctx));
		return out;
	}
};

std::string name_of(const statement_ptr &s) {
	if (is_stmt<identifier>(s)) return cast_stmt<identifier>(s)->val;
	if (is_stmt<call_expression>(s)) return name_of(cast_stmt<call_expression>(s)->callee);
	return "";
}

// collector lists a node and all below it. The engine's visitor leaves out the items of literals.
struct collector {
	context ctx;
	std::vector<statement *> nodes;

	collector() {
		ctx.visitor = [this](bool, const statement *, std::vector<visitor_pair> children) {
			for (const auto &[label, list] : children) {
				for (const auto *child : list) add(child);
			}
		};
	}

	void add(const statement *s) {
		if (!s) return;
		nodes.push_back(const_cast<statement *>(s)); // the nodes are ours; only the visitor shows them as const
		if (auto *array = dynamic_cast<const array_literal *>(s)) return add_all(array->val);
		if (auto *tuple = dynamic_cast<const tuple_literal *>(s)) return add_all(tuple->val);
		if (auto *object = dynamic_cast<const object_literal *>(s)) {
			for (const auto &[key, item] : object->val) add(key.get()), add(item.get());
			return;
		}
		s->visit(ctx);
	}

	void add_all(const statements &list) {
		for (const auto &s : list) add(s.get());
	}
};

// wrap puts a node of type T around the one in slot.
template <class T> void wrap(statement_ptr &slot) {
	const size_t pos = slot->pos;
	slot = std::make_unique<T>(std::move(slot));
	slot->pos = pos;
}

void mark_filter(filter_expression &f) {
	const std::string name = name_of(f.filter);
	if (name != "tojson" && name != "join" && name != "string" && name != "safe") return;
	const size_t pos = f.pos;
	f.operand = std::make_unique<marking_filter>(std::move(f.operand), std::move(f.filter), name == "tojson");
	f.filter = std::make_unique<identifier>("string"); // leaves a string as it is
	f.operand->pos = f.filter->pos = pos;
}

// mark_split wraps the expression in slot where it is `x.split(…)` or `x.rsplit(…)`.
void mark_split(statement_ptr &slot) {
	if (!slot || !is_stmt<call_expression>(slot)) return;
	const auto &callee = cast_stmt<call_expression>(slot)->callee;
	if (!is_stmt<member_expression>(callee)) return;
	const std::string name = name_of(cast_stmt<member_expression>(callee)->property);
	if (name == "split" || name == "rsplit") wrap<marking_call>(slot);
}

void check_plus(binary_expression &b) {
	if (b.op.value != "+") return;
	wrap<left_of_plus>(b.left);
	wrap<right_of_plus>(b.right);
}

void print_as_python(statements &body) {
	for (auto &s : body) {
		if (dynamic_cast<expression *>(s.get()) && !is_stmt<string_literal>(s)) wrap<printing>(s);
	}
}

void bound(statements &body) {
	auto bounded = std::make_unique<bounded_body>(std::move(body));
	bounded->pos = 0;
	body.clear();
	body.push_back(std::move(bounded));
}

// adjust wraps what the engine does in another way than we want; see the top of this file.
void adjust(program &prog) {
	collector all;
	all.add_all(prog.body);
	for (auto *node : all.nodes) {
		if (auto *m = dynamic_cast<member_expression *>(node)) mark_split(m->object);
		if (auto *s = dynamic_cast<set_statement *>(node)) mark_split(s->val), print_as_python(s->body);
		if (auto *f = dynamic_cast<filter_expression *>(node)) mark_split(f->operand);
		if (auto *b = dynamic_cast<binary_expression *>(node)) check_plus(*b);
		if (auto *i = dynamic_cast<if_statement *>(node)) print_as_python(i->body), print_as_python(i->alternate);
		if (auto *l = dynamic_cast<for_statement *>(node)) {
			mark_split(l->iterable), print_as_python(l->body), print_as_python(l->default_block);
		}
		if (auto *m = dynamic_cast<macro_statement *>(node)) print_as_python(m->body), bound(m->body);
		if (auto *c = dynamic_cast<call_statement *>(node)) print_as_python(c->body);
		if (auto *f = dynamic_cast<filter_statement *>(node)) print_as_python(f->body);
	}
	for (auto *node : all.nodes) {
		if (auto *f = dynamic_cast<filter_expression *>(node)) mark_filter(*f);
	}
	print_as_python(prog.body);
}

// on_big_stack runs f on a thread of its own and waits for it. The memory is reserved, not used.
void on_big_stack(const std::function<void()> &f) {
	pthread_attr_t attr;
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, size_t(1) << 30);
	pthread_t thread;
	auto run = [](void *p) -> void * { (*static_cast<const std::function<void()> *>(p))(); return nullptr; };
	if (pthread_create(&thread, &attr, run, const_cast<std::function<void()> *>(&f)) == 0) {
		pthread_join(thread, nullptr);
	} else {
		f();
	}
	pthread_attr_destroy(&attr);
}

// attempt runs f on a big stack; the result is NULL or what it threw.
template <class F> char *attempt(F &&f) noexcept {
	std::string error;
	bool failed = true;
	on_big_stack([&] {
		try {
			f();
			failed = false;
		} catch (const std::bad_alloc &) {
			error = "out of memory";
		} catch (const std::exception &e) {
			error = e.what();
		} catch (...) { // the engine's own break and continue signals, outside a loop
			error = "break or continue outside a loop";
		}
	});
	return failed ? dup(error) : nullptr;
}

value bounded_range(const func_args &args) {
	int64_t span = 0, step = 1;
	for (size_t i = 0; i < args.count() && i < 3; i++) {
		const int64_t n = args.get_pos(i)->as_int();
		if (i == 2) step = n; else span = std::max(span, std::abs(n));
	}
	if (span > 1'000'000 && std::abs(step) < span / 1'000'000) throw std::runtime_error("range() is too long");
	return global_builtins().at("range")(args);
}

} // namespace

qn_template *qn_template_parse(const char *source, size_t len, char **error) {
	auto *t = new (std::nothrow) qn_template;
	if (!t) return nullptr;
	*error = attempt([&] {
		t->source.assign(source, len);
		t->prog = parse_from_tokens(lexer().tokenize(t->source));
		adjust(t->prog);
	});
	if (!*error) return t;
	qn_template_free(t);
	return nullptr;
}

void qn_template_free(qn_template *t) {
	on_big_stack([&] { delete t; }); // a deep tree is freed as deep as it was built
}

char *qn_template_render(const qn_template *t, const char *input, size_t input_len, const char *plain, size_t plain_len,
	int64_t now, qn_rendered *out) {
	std::string raised;
	bool has_raised = false;
	char *error = attempt([&] {
		context ctx(t->source);
		ctx.current_time = now;
		set_all(ctx, plain, plain_len, false);
		set_all(ctx, input, input_len, true);
		ctx.set_val("range", mk_val<value_func>("range", bounded_range));
		ctx.set_val("raise_exception", mk_val<value_func>("raise_exception", [&](const func_args &args) -> value {
			raised = args.count() > 0 ? args.get_pos(0)->as_string().str() : "";
			has_raised = true;
			throw std::runtime_error(raised);
		}));
		const auto parts = runtime::gather_string_parts(runtime(ctx).execute(t->prog));
		const auto &list = parts->val_str.parts;
		const std::string text = parts->as_string().str();
		out->text = dup(text);
		out->len = text.size();
		out->parts = static_cast<qn_part *>(malloc(sizeof(qn_part) * (list.size() + 1)));
		if (!out->text || !out->parts) throw std::bad_alloc();
		size_t end = 0;
		for (const auto &part : list) out->parts[out->n_parts++] = {end += part.val.size(), part.is_input};
	});
	if (error && has_raised) out->raised = dup(raised);
	return error;
}
