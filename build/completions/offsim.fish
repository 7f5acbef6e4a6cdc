# Completion of offsim for fish. The program lists its verbs and options itself, so this file never lags behind.

function __offsim_words
    set -l words (commandline -opc)
    if test (count $words) -eq 1
        $words[1] --list-verbs 2>/dev/null
        return
    end
    set -l lines ($words[1] $words[2] --list-options 2>/dev/null)
    for line in $lines
        set -l fields (string split \t -- $line)
        if test "$fields[1]" = "$words[-1]" -a -n "$fields[2]"
            if string match -qr '^[a-z0-9_|-]+$' -- $fields[2]
                string split '|' -- $fields[2]
            else
                __fish_complete_path (commandline -ct)
            end
            return
        end
    end
    if string match -q -- '-*' (commandline -ct)
        for line in $lines
            set -l fields (string split \t -- $line)
            printf '%s\t%s\n' $fields[1] $fields[3]
        end
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c offsim -f -a '(__offsim_words)'
