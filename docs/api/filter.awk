# What Doxygen reads in place of a header: its plain comments as comments of Doxygen's. One before a declaration becomes
# /** … */, one behind a member or a value /**< … */, and one before a group of functions without empty lines between
# them belongs to each. Headings of sections stay as they are. What Doxygen would take for commands or tags is only
# text, but in code: `…` and lines that are indented by four.

# escape(TEXT): with \ before what Doxygen reads as its own.
function escape(text,    parts, n, i, result) {
  if (text ~ /^ *\*?     /)
    return text
  n = split(text, parts, "`")
  for (i = 1; i <= n; i++) {
    if (i % 2)
      gsub(/[\\@<#]/, "\\\\&", parts[i])
    result = result (i > 1 ? "`" : "") parts[i]
  }
  return result
}

# take(LINE): the next line of a comment.
function take(line,    end) {
  end = index(line, "*/")
  inside = !end
  return escape(end ? substr(line, 1, end - 1) : line) (end ? substr(line, end) : "")
}

inside {
  line = take($0)
  text = text line "\n"
  print line
  next
}

/^$|^#ifndef/ { text = "" }

index($0, "/*") && !/^#(endif|else)|\/\* (--|clang-format)/ {
  code = substr($0, 1, index($0, "/*") - 1)
  line = take(substr($0, index($0, "/*") + 2))
  if (code ~ /[^ ]/) {
    print code "/**<" line
    declared = 1
  } else {
    text = "/**" (FNR == 1 ? " @file" : "") line "\n"
    printf "%s%s", code, text
    declared = 0
  }
  next
}

/^(FL_API|#define) / && text && declared { printf "%s", text }

{ declared = 1; print }
